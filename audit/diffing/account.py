"""What one run did, counted while its events go by: batches, outputs, preemptions, waits.

`Account.turns` reads the run to its end and gives its batches on the way, so that two runs can be
read side by side.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from rlt_fsm.states import FinishReason

from ..facts import BatchData, FinishData, decode
from ..fold import UNREADABLE
from ..legality import Move
from ..reader import EXTRA, MOVE, REF, SEQ, STEP, B, C, D, E, Event
from ..waits import ENDS_WAIT, Since, begins, waited
from .side import Side

PREEMPTIONS: Final = ("yield", "offload", "rewind")
REFUSED: Final = "refused"

Handler = Callable[[Event], None]
Tell = Callable[[int], None]  # how many events of this run were read


class TurnRow(NamedTuple):
    """A request's place in a batch."""

    request: str
    work: str
    token_start: int
    token_count: int
    depth: int | None
    replay: bool


class Turn(NamedTuple):
    """A step with a batch, and its rows in order; `seq` is that of the first one's `select`."""

    step: int
    rows: tuple[TurnRow, ...]
    seq: int


class Given(NamedTuple):
    """An output; `exit_depth` is 1-based."""

    token_id: int
    exit_depth: int
    step: int
    seq: int


class WorksCount(NamedTuple):
    """Batches of one set of work keys, their rows and tokens."""

    batches: int = 0
    rows: int = 0
    tokens: int = 0


class Account:
    """One side's numbers; complete once `turns` is exhausted.

    `ends` has each request's finish reason (`refused` for one that was turned away) with the step
    and seq; one that has not ended is not in it.
    """

    def __init__(self, side: Side, tell: Tell | None = None) -> None:
        self._side = side
        self._tell = tell
        self.steps = 0
        self.works: dict[str, WorksCount] = {}
        self.outputs: dict[str, list[Given]] = {}
        self.ends: dict[str, tuple[str, int, int]] = {}
        self.preemptions: Counter[str] = Counter()
        self.waits: dict[str, int] = {}
        self.arrived: dict[str, int] = {}  # request → step of its submit
        self._since: dict[int, Since] = {}
        self._rows: list[TurnRow] = []
        self._seq = 0
        self._last_step = 0
        moves = side.run.moves.items()
        self._handlers: dict[int, tuple[Handler, ...]] = {n: self._listeners(m) for n, m in moves}

    def turns(self) -> Iterator[Turn]:
        """Read the run; every step with a batch, in order."""
        handlers, none = self._handlers, ()
        for step, events in groupby(self._side.events(), key=itemgetter(STEP)):
            self._rows = []
            last = 0
            for event in events:
                last = event[SEQ]
                for handler in handlers.get(event[MOVE], none):
                    handler(event)
            self.steps += 1
            self._last_step = step
            if self._tell is not None and not self.steps % 256:
                self._tell(last)
            if self._rows:
                yield Turn(step, tuple(self._rows), self._seq)
        for ref, since in self._since.items():
            self._add_wait(ref, waited(since, self._last_step + 1))

    # ---- what the events say -----------------------------------------------------------------

    def _listeners(self, move: Move) -> tuple[Handler, ...]:
        """Who listens to a move, in this order."""
        own: dict[str, Handler] = {
            "submit": self._submit,
            "submit_remote": self._submit,
            "refuse": self._refuse,
            "submit_batch": self._batch,
            "output": self._output,
            "finish": self._finish,
            "abort": self._abort,
        }
        found: list[Handler] = []
        if move.trigger in ENDS_WAIT:
            found.append(self._end_wait)
        if begins(move, 0, 0) is not None:
            found.append(self._begin_wait(move))
        if move.trigger == "select":
            found.append(self._selected(move))
        if move.trigger in PREEMPTIONS:
            found.append(lambda _: self.preemptions.update((move.trigger,)))
        if move.trigger in own:
            found.append(own[move.trigger])
        return tuple(found)

    def _name(self, event: Event) -> str:
        return self._side.names.get(event[REF], "?")

    def _submit(self, event: Event) -> None:
        name = self._name(event)
        self.arrived[name] = event[STEP]
        self.outputs[name] = []
        self.waits[name] = 0

    def _refuse(self, event: Event) -> None:
        self.ends[self._name(event)] = (REFUSED, event[STEP], event[SEQ])

    def _output(self, event: Event) -> None:
        given = Given(event[B], event[C], event[STEP], event[SEQ])
        self.outputs.setdefault(self._name(event), []).append(given)

    def _finish(self, event: Event) -> None:
        try:
            reason = decode(event[EXTRA], FinishData).finish_reason
        except UNREADABLE:
            reason = "?"
        self.ends[self._name(event)] = (reason, event[STEP], event[SEQ])

    def _abort(self, event: Event) -> None:
        self.ends[self._name(event)] = (FinishReason.ABORT.value, event[STEP], event[SEQ])

    def _batch(self, event: Event) -> None:
        try:
            data = decode(event[EXTRA], BatchData)
        except UNREADABLE:
            return
        works = "+".join(sorted(data.works))
        batches, rows, tokens = self.works.get(works, WorksCount())
        self.works[works] = WorksCount(batches + 1, rows + data.rows, tokens + data.tokens)

    def _selected(self, move: Move) -> Handler:
        key = "" if move.work is None else move.work[1].partition(":")[2]
        names = self._side.names

        def selected(event: Event) -> None:
            if not self._rows:
                self._seq = event[SEQ]
            name = names.get(event[REF], "?")
            self._rows.append(TurnRow(name, key, event[B], event[C], event[D], bool(event[E])))  # type: ignore[arg-type]  # a select's depth is whole

        return selected

    # ---- waits -------------------------------------------------------------------------------

    def _begin_wait(self, move: Move) -> Handler:
        def begin(event: Event) -> None:
            since = begins(move, event[SEQ], event[STEP])
            assert since is not None
            self._since[event[REF]] = since

        return begin

    def _end_wait(self, event: Event) -> None:
        since = self._since.pop(event[REF], None)
        if since is not None and event[STEP] > since.first_step:
            self._add_wait(event[REF], event[STEP] - since.first_step)

    def _add_wait(self, ref: int, steps: int) -> None:
        name = self._side.names.get(ref, "?")
        self.waits[name] = self.waits.get(name, 0) + steps
