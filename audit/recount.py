"""What a run's events add up to so far: the auditor's own tally, shared by the invariants.

Each part is written by one writer, named beside it, and read by all. It is independent of the
engine's fold: a checker that reuses what it checks is worthless.
"""

from typing import Final, cast

from rlt_fsm.log.port import EventColumns, StepRow
from rlt_fsm.machines import FREE, IDLE, NONE, NULL

from .block_ledger import BlockLedger
from .facts import Params, SubmitData, decode
from .reader import EXTRA, REF, SEQ, Event, RunLog
from .ready_work import ReadyWork
from .token_progress import TokenProgress
from .waiting_line import OrderKey, WaitingLine

NO_EVENTS: Final[EventColumns] = [[] for _ in Event._fields]


class Request:
    """An accepted request's own facts. `submitted_seq` orders arrivals."""

    __slots__ = ("params", "prompt_len", "submitted_seq")

    def __init__(self, prompt_len: int, params: Params, submitted_seq: int) -> None:
        self.prompt_len = prompt_len
        self.params = params
        self.submitted_seq = submitted_seq

    @property
    def capacity(self) -> int:
        """Positions that need KV: the last output is never fed back."""
        return self.prompt_len + self.params.max_tokens - 1


class Ticket:
    """One batch: its state in the ticket machine and, until it is retired, its requests."""

    __slots__ = ("number", "refs", "state", "submitted_seq")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs: dict[int, int] = {}  # ref → its last row
        self.state: str = NULL
        self.submitted_seq = 0


class Step:
    """One step that was read: its events by column. `row` is None where the log has none (yet)."""

    __slots__ = (
        "columns", "has_close", "is_before_recovery", "is_last", "is_recovery", "number", "row",
        "ticket",
    )  # fmt: skip

    def __init__(self, number: int, columns: EventColumns, row: StepRow | None) -> None:
        self.number = number
        self.columns = columns or NO_EVENTS
        self.row = row
        self.is_last = False  # no later event is in the log
        self.is_before_recovery = False  # the run crashed in it, or after it
        self.is_recovery = False  # it begins with `recover`
        self.has_close = False
        self.ticket: int | None = None  # of its submit_batch

    @property
    def length(self) -> int:
        """How many events it has."""
        return len(self.columns[SEQ])

    @property
    def last_seq(self) -> int | None:
        """Of its last event; None without events."""
        seqs = self.columns[SEQ]
        return seqs[-1] if seqs else None

    def events(self, start: int = 0, end: int | None = None) -> list[Event]:
        """The events from one place up to another."""
        columns = [column[start:end] for column in self.columns]
        return cast("list[Event]", list(zip(*columns, strict=True)))

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is still to come."""
        return self.row is not None or not self.is_last


class Recount:
    """The tally of one run."""

    def __init__(self, run: RunLog) -> None:
        self.run = run
        self.config = run.config
        self.model = run.model
        size = 1 + max(run.requests, default=-1)
        # Written by the pass: whether the step being read is a recovery.
        self.is_recovering = False
        # By ref, written by S1 as each event is read.
        self.status: list[str] = [NULL] * size
        self.work: list[str] = [IDLE] * size
        self.slot: list[str] = [FREE] * size
        self.kv: list[str] = [NONE] * size
        # By ref, written by `submitted`; None before submit and for a request that was refused.
        self.requests: list[Request | None] = [None] * size
        # By ref (None: events of tickets and the run), written by the pass after each event.
        self.latest_seq: dict[int | None, int] = {}
        # By ref, written by S8: outputs so far, and with the one that is being sampled.
        self.outputs: list[int] = [0] * size
        self.scheduled_outputs: list[int] = [0] * size
        # By ref from `admit` to `retire`, written by S7.
        self.progress: dict[int, TokenProgress] = {}
        # Written by S6 (rows) and S11 (states).
        self.tickets: dict[int, Ticket] = {}
        self.in_flight: dict[int, Ticket] = {}  # submitted and not retired
        # Written by S9.
        self.blocks = BlockLedger(size, run.model.planes, run.config.cache)
        # Written by S2 and S5.
        self.slot_holders: set[int] = set()
        self.waiting: set[int] = set()
        # Written by F1: who waits, in order, and by ref how many were admitted before a better one.
        self.line = WaitingLine()
        self.passes: dict[int, int] = {}
        # Written by F4: whose work is ready, and by ref the last ticket that has a row of it.
        self.ready = ReadyWork()
        self.last_ticket: list[int] = [-1] * size
        # Written by F2: batches with prompt rows since the last decode loop.
        self.prompt_batches = 0
        self._refs: dict[str, int] | None = None  # by `id#gen`

    def grow(self) -> None:
        """Make room for requests that the run has named since."""
        more = 1 + max(self.run.requests, default=-1) - len(self.status)
        if more <= 0:
            return
        self.status += [NULL] * more
        self.work += [IDLE] * more
        self.slot += [FREE] * more
        self.kv += [NONE] * more
        self.requests += [None] * more
        self.outputs += [0] * more
        self.scheduled_outputs += [0] * more
        self.last_ticket += [-1] * more
        self.blocks.grow(more)
        self._refs = None

    def name(self, ref: int) -> str:
        """A request as people write it: its id, with the generation from the second on."""
        row = self.run.requests.get(ref)
        if row is None:
            return f"ref {ref}"
        return row.request_id if row.generation == 1 else f"{row.request_id}#{row.generation}"

    def ref_of(self, name: str) -> int | None:
        """The request that the log writes as `id#gen`, as in `for`; None if there is none."""
        if self._refs is None:
            rows = self.run.requests.items()
            self._refs = {f"{row.request_id}#{row.generation}": ref for ref, row in rows}
        return self._refs.get(name)

    def order_key(self, ref: int) -> OrderKey:
        """(priority under policy `priority`, else 0; submitted seq); smaller is better."""
        request = self.requests[ref]
        if request is None:
            return (0, 0)
        by_priority = self.config.scheduler.policy == "priority"
        return (request.params.priority if by_priority else 0, request.submitted_seq)

    @property
    def numbers_in_flight(self) -> list[int]:
        """The tickets in flight; one that was submitted without a number comes first."""
        return sorted(self.in_flight, key=lambda number: -1 if number is None else number)

    @property
    def next_ticket(self) -> int:
        """The number of the batch being built, or of the next one."""
        newest = next(reversed(self.tickets.values()), None)
        if newest is None:
            return 0
        return newest.number if newest.state == NULL else newest.number + 1

    def submitted(self, event: Event) -> None:
        """Take a request's facts from its `submit`."""
        data = decode(event[EXTRA], SubmitData)
        self.requests[event[REF]] = Request(len(data.prompt_token_ids), data.params, event[SEQ])

    def required_blocks(self, tokens: int) -> int:
        """Physical blocks over all planes that hold `tokens` positions."""
        return -(-tokens // self.config.cache.block_size) * self.model.planes
