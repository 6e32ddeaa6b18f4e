"""What is counted of a run, event by event: the arithmetic behind `metrics.py`.

Plain numbers, changed in place; no lock and no log here. What is kept of a run does not grow with
it: only what is alive. Of a run whose first events are in an archive, what lived on from there is
in the gauges, and is not timed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from .log.port import Checkpoint, EventCells, MoveRow, StepRow
from .machines import NULL
from .moves import STATUS_OF
from .states import FinishReason, RequestStatus

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
PREEMPTIONS: Final = ("yield", "offload", "offload_resident", "rewind")

# Places of `EventRow`.
_SEQ, _TICKET, _T_NS, _REF, _MOVE, _REASON, _EXIT_DEPTH, _EXTRA = 0, 2, 3, 4, 5, 8, 11, 14


class Tally:
    """A histogram of seconds; `counts` has one place more than SECONDS, for longer times."""

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, nanoseconds: int) -> None:
        """Count a time."""
        seconds = nanoseconds / 1e9
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Run:
    """What the next rows of one run are counted with."""

    def __init__(self) -> None:
        self.seen_seq = 0
        # By ref, of requests that have not finished; None: that is in an archive.
        self.submitted_ns: dict[int, int | None] = {}
        self.output_ns: dict[int, int] = {}  # their newest output
        self.draining: set[int] = set()  # aborted, but a remote peer still reads their pages
        self.tickets_ns: dict[int, int | None] = {}  # when each unretired ticket was submitted
        self.step: StepRow | None = None  # the newest that has ended
        self.is_over = False
        self.is_cut = False  # events were archived before they were counted
        self.is_left = False  # a newer run took its place, and nothing was written to it since

    @property
    def goes_on(self) -> bool:
        """Whether the gauges show it."""
        return not (self.is_over or self.is_left)

    def begin_after(self, checkpoint: Checkpoint) -> None:
        """Take what is alive from a checkpoint, in place of the events up to it.

        One whose state is another version's tells of nothing alive.
        """
        self.seen_seq = checkpoint.seq
        try:
            state = _state(checkpoint.engine)
        except msgspec.MsgspecError:
            state = _State([], {})
        statuses = {request.ref: STATUS_OF[request.joint] for request in state.requests}
        self.output_ns.clear()
        self.submitted_ns = {
            ref: None for ref, status in statuses.items() if status != RequestStatus.FINISHED
        }
        self.draining = {
            request.ref
            for request in state.requests
            if statuses[request.ref] == RequestStatus.TRANSFERRING
            and request.finish_reason == FinishReason.ABORT
        }
        self.tickets_ns = {
            number: None for number, ticket in state.tickets.items() if ticket.state != NULL
        }


class Counts:
    """All that is counted, over any number of runs."""

    def __init__(self) -> None:
        self.events = self.steps = self.submitted = self.failed = self.dropped = 0
        self.finished: Counter[str] = Counter()  # by finish reason
        self.refused: Counter[str] = Counter()  # by the reason's code
        self.depths: Counter[int] = Counter()  # outputs by exit depth
        self.batches: Counter[str] = Counter()  # by operation, like the next two
        self.rows: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.preemptions: Counter[str] = Counter()  # by kind
        self.first_output, self.between_outputs, self.whole = Tally(), Tally(), Tally()
        self.batch = Tally()

    def take(self, run: Run, rows: Iterable[EventCells], handlers: "Handlers") -> None:
        """Count events of a run, in order."""
        for row in rows:
            run.seen_seq = row[_SEQ]
            self.events += 1
            handler = handlers.get(row[_MOVE])
            if handler is not None:
                handler(self, run, row)

    def end_steps(self, run: Run, steps: Sequence[StepRow]) -> None:
        """Count steps that have ended, after their events."""
        if steps:
            self.steps += len(steps)
            run.step = steps[-1]


Handler = Callable[[Counts, Run, EventCells], None]
Handlers = Mapping[int, Handler]  # by the number of the move


class _BatchData(msgspec.Struct, frozen=True):
    operation: str
    rows: int
    tokens: int


class _FinishData(msgspec.Struct, frozen=True):
    finish_reason: str


class _LiveRequest(msgspec.Struct, frozen=True):
    ref: int
    joint: int
    finish_reason: str | None


class _LiveTicket(msgspec.Struct, frozen=True):
    state: str


class _State(msgspec.Struct, frozen=True):
    """What is counted of an engine's state in a checkpoint."""

    requests: list[_LiveRequest]
    tickets: dict[int, _LiveTicket]


_batch_data = msgspec.json.Decoder(_BatchData).decode
_finish_data = msgspec.json.Decoder(_FinishData).decode
_state = msgspec.json.Decoder(_State).decode


# ---- one function for each kind of event -----------------------------------------------------


def _submit(counts: Counts, run: Run, row: EventCells) -> None:
    counts.submitted += 1
    run.submitted_ns[row[_REF]] = row[_T_NS]


def _refuse(counts: Counts, _run: Run, row: EventCells) -> None:
    counts.refused[row[_REASON].partition(" ")[0]] += 1


def _output(counts: Counts, run: Run, row: EventCells) -> None:
    ref, now = row[_REF], row[_T_NS]
    counts.depths[row[_EXIT_DEPTH]] += 1
    if (before := run.output_ns.get(ref)) is not None:
        counts.between_outputs.add(now - before)
    elif (submitted_ns := run.submitted_ns.get(ref)) is not None:
        counts.first_output.add(now - submitted_ns)
    run.output_ns[ref] = now


def _finish(counts: Counts, run: Run, row: EventCells) -> None:
    _end(counts, run, row, _finish_data(row[_EXTRA]).finish_reason)


def _abort(counts: Counts, run: Run, row: EventCells) -> None:
    _end(counts, run, row, FinishReason.ABORT.value)


def _abort_draining(_counts: Counts, run: Run, row: EventCells) -> None:
    run.draining.add(row[_REF])


def _transferred(counts: Counts, run: Run, row: EventCells) -> None:
    is_aborted = row[_REF] in run.draining
    run.draining.discard(row[_REF])
    reason = FinishReason.ABORT if is_aborted else FinishReason.TRANSFERRED
    _end(counts, run, row, reason.value)


def _end(counts: Counts, run: Run, row: EventCells, reason: str) -> None:
    counts.finished[reason] += 1
    if (submitted_ns := run.submitted_ns.pop(row[_REF], None)) is not None:
        counts.whole.add(row[_T_NS] - submitted_ns)
    run.output_ns.pop(row[_REF], None)


def _submit_batch(counts: Counts, run: Run, row: EventCells) -> None:
    data = _batch_data(row[_EXTRA])
    counts.batches[data.operation] += 1
    counts.rows[data.operation] += data.rows
    counts.tokens[data.operation] += data.tokens
    run.tickets_ns[row[_TICKET]] = row[_T_NS]


def _complete_batch(counts: Counts, run: Run, row: EventCells) -> None:
    if (submitted_ns := run.tickets_ns.get(row[_TICKET])) is not None:
        counts.batch.add(row[_T_NS] - submitted_ns)


def _fail_batch(counts: Counts, _run: Run, _row: EventCells) -> None:
    counts.failed += 1


def _retire_batch(_counts: Counts, run: Run, row: EventCells) -> None:
    run.tickets_ns.pop(row[_TICKET], None)


def _drop(counts: Counts, _run: Run, _row: EventCells) -> None:
    counts.dropped += 1


def _close(_counts: Counts, run: Run, _row: EventCells) -> None:
    run.is_over = True


def _preempted(kind: str) -> Handler:
    def preempt(counts: Counts, _run: Run, _row: EventCells) -> None:
        counts.preemptions[kind] += 1

    return preempt


_BY_TRIGGER: Final[dict[str, Handler]] = {
    "submit": _submit,
    "submit_remote": _submit,
    "refuse": _refuse,
    "output": _output,
    "finish": _finish,
    "transfer_done": _transferred,
    "submit_batch": _submit_batch,
    "complete_batch": _complete_batch,
    "fail_batch": _fail_batch,
    "retire_batch": _retire_batch,
    "drop": _drop,
    "close": _close,
    **{kind: _preempted(kind) for kind in PREEMPTIONS},
}


def handlers(moves: Iterable[MoveRow]) -> Handlers:
    """What to do at each of these moves; nothing at those that are left out."""
    found: dict[int, Handler] = {}
    for row in moves:
        if row.trigger == "abort":
            is_over = row.status_to == RequestStatus.FINISHED
            found[row.move] = _abort if is_over else _abort_draining
        elif row.trigger in _BY_TRIGGER:
            found[row.move] = _BY_TRIGGER[row.trigger]
    return found
