"""What one reading of a run comes to: columns of whole numbers, and the texts that they number.

Filled by `gather.py`. Steps are numbered by their place among the steps that have events
(`column`), so that a jump of the step counter leaves no gap on the page.
"""

from array import array
from collections import Counter
from typing import Final, NamedTuple

from audit.reader import RunLog
from rlt_fsm.machines import NULL

from . import kinds

LONG: Final = "q"
NO_NUMBER: Final = -1  # where a column has nothing to tell


class Table(dict[str, "array[int]"]):
    """Columns of whole numbers by name, grown row by row."""

    def __init__(self, *names: str) -> None:
        super().__init__((name, array(LONG)) for name in names)

    def add(self, *values: int) -> None:
        """Append a row, or nothing where a value is no whole number."""
        length = len(next(iter(self.values())))
        try:
            for column, value in zip(self.values(), values, strict=True):
                column.append(value)
        except (TypeError, OverflowError):
            for column in self.values():
                del column[length:]
            raise


class Texts(list[str]):
    """Every text once, by number."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The text's number."""
        known = self._numbers.setdefault(text, len(self))
        if known == len(self):
            self.append(text)
        return known


class States(NamedTuple):
    """The four machines of one request."""

    status: str = NULL
    work: str = "IDLE"
    slot: str = "FREE"
    kv: str = "NONE"


class Gathered:
    """What a run's events tell.

    Rows of `batches` are numbered as they come; `rows.batch` names them. `lanes` has a row for each
    change of what a request is (`kinds`), `machines` one for each change of its status, slot or KV.
    """

    def __init__(self, run: RunLog) -> None:
        self.run = run
        self.steps = array(LONG)
        self.queued = {key: array(LONG) for key in kinds.KEYS}
        self.waiting, self.held = array(LONG), array(LONG)
        self.requests = Table(
            "ref", "submitted", "submitted_seq", "first_output", "ended", "prompt_len",
            "max_tokens", "priority", "outputs", "preemptions", "waited", "idled",
        )  # fmt: skip
        self.ends: dict[int, str] = {}  # ref → how it ended
        self.lanes = Table("ref", "column", "kind")
        self.machines = Table("ref", "column", "status", "slot", "kv")
        self.batches = Table(
            "ticket", "column", "operation", "works", "rows", "tokens", "reason", "submitted_seq",
            "completed_seq", "retired_seq",
        )  # fmt: skip
        self.rows = Table("ref", "batch", "row", "work", "start", "count", "depth", "replay")
        self.outputs = Table("ref", "column", "idx", "token", "exit_depth", "seq")
        self.notes = Table("ref", "column", "seq", "trigger", "text")
        self.texts, self.names = Texts(), Texts()  # what happened; words of few letters
        self.idle_steps: Counter[int] = Counter()  # ready but in no batch: steps → how often
        self.unread = 0  # events that could not be read
