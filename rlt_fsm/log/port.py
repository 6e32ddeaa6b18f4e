"""The log as a port: the rows that cross it, and what every adapter must do.

No SQL here. One `EventRow` per event; `batch_row`, `output`, `block_change` and `transition` of the
public views are projections of it, so that no fact is stored twice.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

CHUNK_ROWS: Final = 2048  # read at once

EventColumns = list[list[Any]]  # a chunk of events by column, in the order of EventRow
EventCells = tuple[Any, ...]  # a plain tuple in the order of EventRow: what the hot path passes


class EventRow(NamedTuple):
    """One event as stored; `EventCells` are plain tuples of this shape.

    `ref` is the request's ordinal in the run (None for ticket and run events). `move` numbers
    `rlt_fsm.moves.MOVES` when it is written, `LogReader.moves` when it is read. `a` … `e` by
    trigger, NULL elsewhere:

    ============  ===========  ===========  ===========  =======  ==========
    trigger       a            b            c            d        e
    ============  ===========  ===========  ===========  =======  ==========
    select        row          token_start  token_count  depth    replay 0/1
    enqueue       exit_depth
    output        idx          token_id     exit_depth   logprob
    ============  ===========  ===========  ===========  =======  ==========

    `extra` is a JSON object with everything else that a fact tells; its keys `take share drop
    publish evict pin unpin` hold block ids and are the `block_change` view.
    """

    seq: int
    step: int
    ticket: int | None
    t_ns: int
    ref: int | None
    move: int
    blocks: int | None
    cause: int | None
    reason: str | None
    a: int | None
    b: int | None
    c: int | None
    d: float | int | None
    e: int | None
    extra: str | None


class RequestRow(NamedTuple):
    """What a `ref` stands for."""

    ref: int
    request_id: str
    generation: int


class StepRow(NamedTuple):
    """One step that has ended. `digest` is the chain's 32 bytes after it."""

    step: int
    first_seq: int
    last_seq: int
    ticket: int | None
    waiting: int
    slots_held: int
    blocks_free: int
    blocks_prefix_only: int
    host_blocks: int
    digest: bytes


class MoveRow(NamedTuple):
    """A joint move as text; `trigger` as the log shows it; None where a machine is not moved."""

    move: int
    trigger: str
    status_from: str | None
    status_to: str | None
    work_from: str | None
    work_to: str | None
    slot_from: str | None
    slot_to: str | None
    kv_from: str | None
    kv_to: str | None


class EdgeRow(NamedTuple):
    """One machine's part of a joint move, as the `transition` view shows it."""

    move: int
    machine: str
    source: str | None
    dest: str | None


class RunHeader(NamedTuple):
    """What is known when a run begins; JSON texts as the public `run` view shows them."""

    started_at: str
    schema_version: int
    engine_version: str
    revision: str
    config: str
    model: str
    workload: str | None


class RunInfo(NamedTuple):
    """One row of the public `run` view; `digest` is hex, None before the first step ended."""

    run_id: int
    started_at: str
    ended_at: str | None
    outcome: str
    schema_version: int
    engine_version: str
    revision: str
    config: str
    model: str
    workload: str | None
    last_seq: int
    digest: str | None


class Checkpoint(NamedTuple):
    """Where a run begins in a file from which its first events were taken away.

    `step` and `seq` are the last ones before it, `digest` is the chain's after them. `engine` and
    `audit` are what an engine's fold and the auditor had come to, as each writes it; `archive`
    names the file that holds the events.
    """

    run_id: int
    step: int
    seq: int
    digest: bytes
    engine: str
    audit: str
    archive: str


class LogWriter(Protocol):
    """Appends to one run. Rows are visible to readers once committed, never half."""

    @property
    def run_id(self) -> int:
        """The run's number in its log."""

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        """Append rows in order; they become durable with the next `commit`."""

    @property
    def durable_seq(self) -> int:
        """The last event that is known to be durable; 0: none."""

    def commit(self) -> None:
        """Make everything written durable. Raises LogUnavailable; what was durable before stays."""

    def commit_soon(self) -> bool:
        """Begin to make everything written durable, and let the disk do it beside the caller; an
        adapter that cannot does it at once.

        False: nothing was begun, since what was begun before goes on, or there is nothing. What
        goes wrong after this has returned is raised by the next call of any of these, as `commit`
        raises it.
        """
        self.commit()
        return True

    def conclude(self) -> None:
        """Wait until what `commit_soon` began is durable."""
        return  # an empty body would make it abstract

    def end(self, outcome: str, ended_at: str) -> None:
        """The run is over: store its outcome and commit."""


class LogReader(Protocol):
    """Reads any run of a log, also while it is written."""

    def absent(self) -> frozenset[str] | None:
        """What another engine's log has no place for: `view` or `view.column`. None: it is ours."""

    def runs(self) -> list[RunInfo]:
        """Every run of the log, by number."""

    def moves(self, run_id: int) -> list[MoveRow]:
        """What the numbers in this run's events mean, by number."""

    def edges(self, run_id: int) -> list[EdgeRow]:
        """What `transition` shows for each move: by number, then status, work, slot, kv."""

    def requests(self, run_id: int, after_ref: int = -1) -> list[RequestRow]:
        """Every request of a run after a ref, refused ones too, in order of their refs."""

    def events(self, run_id: int, after_seq: int = 0) -> Iterator[EventCells]:
        """A run's events after `after_seq`, up to the last one committed when this is called."""

    def columns(self, run_id: int, after_seq: int = 0) -> Iterator[EventColumns]:
        """The same a chunk at a time, column by column: the fastest way through a long run.

        A chunk is a list for each column of `EventRow`, in order; `t_ns` may be told as 0.
        """
        return _by_column(self.events(run_id, after_seq))

    def checkpoint(self, run_id: int) -> Checkpoint | None:
        """Where the run begins here; None: with its first event."""
        del run_id
        return None

    def boundaries(self, run_id: int) -> list[Checkpoint]:
        """The checkpoints between the parts of a log that is read in parts, in order."""
        del run_id
        return []

    def first_after(self, run_id: int, seq: int) -> EventCells | None:
        """The first event after `seq`, found without reading those before it; None at the end."""

    def select(
        self,
        run_id: int,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[EventCells]:
        """The events with one of these refs or moves, after one seq and up to another (None: the
        last committed one), in order, at a small part of the cost of reading all.
        """

    def steps(self, run_id: int, after_step: int = -1) -> Iterator[StepRow]:
        """A run's steps after `after_step`, in order."""

    def step_at(self, run_id: int, step: int) -> StepRow | None:
        """The last step of a run, up to number `step`, that has ended; found, not searched for."""


def _by_column(rows: Iterator[EventCells]) -> Iterator[EventColumns]:
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield [list(column) for column in zip(*chunk, strict=True)]


class EventStore(Protocol):
    """One log: a file, a database, or memory."""

    @property
    def name(self) -> str:
        """The path or URL, for messages; `:memory:` for memory."""

    def begin_run(self, header: RunHeader) -> LogWriter:
        """Store a run's header and give what appends to it."""

    def continue_run(self, run_id: int) -> LogWriter:
        """What appends to a run that has not ended, after its last committed event."""

    def reader(self) -> LogReader:
        """What reads every run of the log."""

    def generation_lookup(self, run_id: int) -> Callable[[str], int] | None:
        """What tells the newest generation of an id among a run's committed requests (0: never
        used), at a cost that does not grow with the run; None where the log has no such way.
        """
        del run_id
        return None

    def damage(self) -> str | None:
        """What is broken in how the rows are stored; None where nothing is, or nothing is known."""
        return None

    def close(self) -> None:
        """Release everything; committed rows stay. May be called twice."""
