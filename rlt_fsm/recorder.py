"""The recorder: a fact is folded, numbered, buffered, made durable. Nothing else writes the log.

A step's rows are kept until the step ends, because its digest covers them all; they may be written
and committed earlier. `group` durability commits while the device computes: groups small enough to
be stored within a loop, and the disk is left to work beside the engine. It waits for the disk at
the end of a step where more has gathered than a crash may cost, GROUP_EVENTS events or GROUP_MS
milliseconds, and always when `commit` is called.
"""

from typing import NamedTuple

from .apply import apply
from .clock import now_ns
from .codec import encode
from .events import Fact, Refused, Retired, Submitted
from .log.digest import step_digest
from .log.port import EventCells, LogWriter, RequestRow, StepRow
from .moves import MOVES, PLAIN_MOVE, describe
from .state import EngineState

GROUP_EVENTS = 2048
GROUP_MS = 50
# What is worth a commit while the device computes: 512 events take 0.6 ms, less than a loop.
GATHERED_EVENTS = 512
GATHERED_MS = GROUP_MS // 2

_NAMING = frozenset({Submitted, Refused, Retired})
_SUBMIT_BATCH = PLAIN_MOVE["submit_batch"]
_MOVE_TEXTS = tuple(describe(move) for move in MOVES)


class Tail(NamedTuple):
    """Where a log stops: its last step, and what of that is not sealed yet.

    `digest` is the chain's after the last sealed step, `rows` come after that, with our moves;
    `names` are those of live requests and of all in `rows`; `t_ns` is the last event's.
    """

    step: int
    digest: bytes
    rows: list[EventCells]
    names: dict[int, str]
    t_ns: int


class _Begun(NamedTuple):
    """A commit that was begun: the last event in it, and when."""

    seq: int
    ns: int


class Recorder:
    """Turns facts into state and rows."""

    def __init__(self, state: EngineState, writer: LogWriter, *, durability: str) -> None:
        self.state = state
        self.step = 0
        self.last_rows: list[EventCells] = []  # of the last step that ended, `EventRow` order
        self._writer = writer
        self._durable_steps = durability == "step"
        self._durable_groups = durability != "off"
        self._started_ns = now_ns()
        self._now_ns = 0
        self._rows: list[EventCells] = []  # of the step that is going on
        self._written = 0  # how many of them the writer has
        self._requests: list[RequestRow] = []
        self._names: dict[int, str] = {}  # ref → id#gen, for live requests and this step's others
        self._gone: list[int] = []
        self._digest = bytes(32)
        self._flushed_seq = 0  # the last event that the writer has
        self._begun = _Begun(0, self._started_ns)
        self._durable_ns = self._started_ns  # what the writer had by then is durable

    # ---- recording ---------------------------------------------------------------------------

    def record(self, fact: Fact, *, ticket: int | None = None, cause: int | None = None) -> int:
        """Fold a fact and buffer its row; return its seq. An illegal fact changes nothing."""
        state = self.state
        seq = state.seq + 1
        move, blocks = apply(state, fact, seq, ticket)
        if type(fact) in _NAMING:
            self._track_name(fact)
        self._rows.append(
            encode(fact, seq, self.step, ticket, self._now_ns, move, blocks, cause, self._names)
        )
        return seq

    def _track_name(self, fact: Fact) -> None:
        """Know what to call a request for as long as an event of this step may name it."""
        if isinstance(fact, Submitted | Refused):
            spec = fact.spec
            self._names[fact.ref] = f"{spec.request_id}#{spec.generation}"
            self._requests.append(RequestRow(fact.ref, spec.request_id, spec.generation))
        if isinstance(fact, Refused | Retired):
            self._gone.append(fact.ref)

    def tick(self) -> None:
        """Read the clock; the rows that follow carry this time."""
        self._now_ns = now_ns() - self._started_ns

    @property
    def digest(self) -> bytes:
        """The chain's digest after the last step that ended."""
        return self._digest

    # ---- durability --------------------------------------------------------------------------

    def commit(self) -> None:
        """Make everything recorded so far durable (not with durability `off`)."""
        if not self._durable_groups:
            return
        self._flush(steps=())
        self._commit()

    def intent(self) -> None:
        """Called before a batch is computed: with durability `step`, the plan is durable first."""
        if self._durable_steps:
            self.commit()

    def commit_gathered(self) -> None:
        """Called while a batch is computed: commit what has gathered of steps that ended."""
        if self._has_gathered(GATHERED_EVENTS, GATHERED_MS):
            begun = _Begun(self._flushed_seq, now_ns())
            if self._writer.commit_soon():
                self._begun = begun

    def end_step(self, ticket: int | None) -> None:
        """Seal the step: extend the digest chain, write its rows, commit if it must be."""
        if self._rows:
            self._seal(ticket)
            if self._durable_steps:
                self._commit()
            else:
                self._keep_bound()
        self.step += 1

    def _seal(self, ticket: int | None) -> None:
        rows = self._rows
        self._digest = step_digest(self._digest, self.step, rows, self._names, _MOVE_TEXTS)
        self._flush(steps=(self._step_row(ticket),))
        self.last_rows, self._rows = rows, []
        self._written = 0
        for ref in self._gone:
            del self._names[ref]
        self._gone.clear()

    def take_up(self, tail: Tail) -> None:
        """Go on where a log stops, before anything is recorded: seal the step that broke off, with
        the next commit, and begin the next.
        """
        assert not self._rows, "nothing was recorded"
        self.step, self._digest, self._names = tail.step, tail.digest, tail.names
        self._started_ns = now_ns() - tail.t_ns
        if tail.rows:
            self._rows, self._written = tail.rows, len(tail.rows)
            self._gone = [ref for ref in tail.names if ref not in self.state.by_ref]
            submitted = [row[2] for row in tail.rows if row[5] == _SUBMIT_BATCH]
            self._seal(submitted[0] if submitted else None)
        self.step += 1
        self.tick()

    def jump_to(self, step: int) -> None:
        """Seal what was recorded since the last step and let the counter jump forward."""
        assert step >= self.step, f"step {step} is before {self.step}: steps never fall"
        if self._rows and step > self.step:
            self.end_step(None)
        self.step = step

    def end_run(self, outcome: str, ended_at: str) -> None:
        """The run is over: everything becomes durable, whatever the durability."""
        self._writer.end(outcome, ended_at)

    def _step_row(self, ticket: int | None) -> StepRow:
        state = self.state
        return StepRow(
            step=self.step,
            first_seq=self._rows[0][0],
            last_seq=self._rows[-1][0],
            ticket=ticket,
            waiting=len(state.waiting),
            slots_held=state.slots_held,
            blocks_free=state.pool.free,
            blocks_prefix_only=state.pool.prefix_only,
            host_blocks=state.host_blocks,
            digest=self._digest,
        )

    def _flush(self, steps: tuple[StepRow, ...]) -> None:
        rows = self._rows[self._written :] if self._written else self._rows
        if rows or steps:
            self._writer.write(rows, self._requests, steps)
            self._written += len(rows)
            if rows:
                self._flushed_seq = rows[-1][0]
            self._requests = []

    def _has_gathered(self, events: int, milliseconds: int) -> bool:
        """Whether so much is written and not durable, which it shall become."""
        if not self._durable_groups:
            return False
        durable_seq = self._writer.durable_seq
        if durable_seq >= self._begun.seq:
            self._durable_ns = max(self._durable_ns, self._begun.ns)
        gathered = self._flushed_seq - durable_seq
        if gathered <= 0:
            return False
        return gathered >= events or now_ns() - self._durable_ns >= milliseconds * 1_000_000

    def _keep_bound(self) -> None:
        """Of steps that have ended no more is left to chance than `group` says."""
        if self._has_gathered(GROUP_EVENTS, GROUP_MS):
            self._writer.conclude()
            if self._has_gathered(GROUP_EVENTS, GROUP_MS):
                self._commit()

    def _commit(self) -> None:
        self._writer.commit()
        self._durable_ns = now_ns()
