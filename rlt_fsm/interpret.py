"""Results → facts: what a batch means for each of its rows. Late results are refused.

Synchronously everything follows from a completed batch. Asynchronously work goes on as soon as a
batch is submitted, as far as no result decides: `advance` records that, `complete` the rest.
"""

from typing import NamedTuple, assert_never

from .batch import Batch, BatchResult, Row
from .events import (
    BatchCompleted,
    BatchFailed,
    Dropped,
    Enqueued,
    Finished,
    OutputSampled,
    Published,
)
from .exits import asks_gate, exits_loop, finish_reason
from .recorder import Recorder
from .state import EngineState, Request
from .states import PROMPT_WORKS, FinishReason, Operation, WorkKey

NextWork = tuple[WorkKey, int | None]  # (key, exit depth where it is DECODE_CODA)


class _Signal(NamedTuple):
    """What the gate said after loop `loops` of the token on the way to output `output_idx`."""

    output_idx: int
    loops: int
    is_open: bool


class Interpreter:
    """Says what follows from batches.

    It keeps what a gate said until the loop that it decides about is submitted: a late exit.
    """

    def __init__(self, state: EngineState, recorder: Recorder) -> None:
        self._state = state
        self._recorder = recorder
        self._is_async = state.is_async
        self._exits_late = state.config.exit.mode == "ouro_delayed"
        self._signals: dict[int, _Signal] = {}  # by ref
        # By ref, of submitted loops that wait for a signal: its (output idx, loops).
        self._undecided: dict[int, tuple[int, int]] = {}

    @property
    def is_undecided(self) -> bool:
        """Whether some submitted loop waits for what the gate said one loop before."""
        return bool(self._undecided)

    def forget(self, request: Request) -> None:
        """A request has ended: nothing is decided about it any more."""
        self._signals.pop(request.ref, None)
        self._undecided.pop(request.ref, None)

    # ---- a batch has a result ----------------------------------------------------------------

    def settle(self, batch: Batch, result: BatchResult) -> int:
        """Record that a batch is completed or has failed; the event's seq."""
        fact = BatchCompleted() if result.error is None else BatchFailed(result.error)
        cause = self._state.tickets[batch.ticket].submitted_seq
        return self._recorder.record(fact, ticket=batch.ticket, cause=cause)

    def complete(self, batch: Batch, result: BatchResult) -> list[Request]:
        """Record what a settled batch brought; the requests that got an output, in row order, or
        that its failure ended. They are still to be retired.
        """
        ticket = batch.ticket
        in_flight = self._state.tickets[ticket]
        settled = in_flight.settled_seq
        owners = [self._owner(ref, ticket) for ref in in_flight.refs]
        if result.error is not None:
            return self._fail(batch, owners, settled)
        causes = self._record_outputs(batch, result, owners, settled)
        for i, (row, request) in enumerate(zip(batch.rows, owners, strict=True)):
            if request is None:
                self._drop(batch, i, settled)
                continue
            gate_open = bool(result.exits) and result.exits[i]
            cause = causes.get(i, settled)
            if self._is_async:
                self._follow_late(ticket, row, request, gate_open=gate_open, cause=cause)
            else:
                fact = self._following(row, request, gate_open=gate_open)
                self._recorder.record(fact, ticket=ticket, cause=cause)
            if request.page_keys and row.work in PROMPT_WORKS:
                self._publish(row, request, settled)
        return [request for i, request in enumerate(owners) if request is not None and i in causes]

    def _fail(self, batch: Batch, owners: list[Request | None], settled: int) -> list[Request]:
        """The device failed a batch: its live requests end with `error`; the engine goes on."""
        for i, request in enumerate(owners):
            if request is None:
                self._drop(batch, i, settled)
            else:
                fact = Finished(request.ref, FinishReason.ERROR)
                self._recorder.record(fact, ticket=batch.ticket, cause=settled)
        return [request for request in owners if request is not None]

    def _owner(self, ref: int, ticket: int) -> Request | None:
        """The live request that a row was taken from, in this ticket; None for a late result.

        A ref stands for one generation of an id.
        """
        request = self._state.by_ref.get(ref)
        if request is None:
            return None
        if self._is_async:  # it may be taken for a later ticket by now
            return request if request.status == "ACTIVE" else None
        return request if request.taken is not None and request.taken_ticket == ticket else None

    def _drop(self, batch: Batch, i: int, cause: int) -> None:
        ref = self._state.tickets[batch.ticket].refs[i]
        self._recorder.record(Dropped(ref, f"late row={i}"), ticket=batch.ticket, cause=cause)

    def _record_outputs(
        self, batch: Batch, result: BatchResult, owners: list[Request | None], settled: int
    ) -> dict[int, int]:
        """Record what the coda rows sampled; row → seq of its output."""
        seqs: dict[int, int] = {}
        if batch.operation is not Operation.CODA:
            return seqs
        record, ticket = self._recorder.record, batch.ticket
        for i, (row, request) in enumerate(zip(batch.rows, owners, strict=True)):
            if request is not None:
                logprob = result.logprobs[i] if result.logprobs else None
                token = result.token_ids[i]
                note = result.notes[i] if result.notes else None
                fact = OutputSampled(
                    request.ref, row.output_idx, token, row.loops_done, logprob, note
                )
                seqs[i] = record(fact, ticket=ticket, cause=settled)
        return seqs

    # ---- synchronously: everything follows from the result -----------------------------------

    def _following(self, row: Row, request: Request, *, gate_open: bool) -> Enqueued | Finished:
        """What follows a computed row: work, or the end of the request."""
        match row.work:
            case WorkKey.DECODE_RECURRENT:
                loops = told_by = row.loops_done + 1
                if self._exits_late:
                    told_by, gate_open = loops - 1, self._said_before(row, request, gate_open)
                if exits_loop(row.spec, loops, row.max_loops, gate_open=gate_open, told_by=told_by):
                    return Enqueued(request.ref, WorkKey.DECODE_CODA, loops)
                return Enqueued(request.ref, WorkKey.DECODE_RECURRENT)
            case WorkKey.DECODE_PRELUDE:
                return Enqueued(request.ref, WorkKey.DECODE_RECURRENT)
            case WorkKey.DECODE_CODA:
                reason = self._finish_reason(row, request)
                if reason is not None:
                    return Finished(request.ref, reason)
                return Enqueued(request.ref, WorkKey.DECODE_PRELUDE)
            case WorkKey.PROMPT_ATOMIC | WorkKey.PROMPT_PRELUDE | WorkKey.PROMPT_RECURRENT:
                return Enqueued(request.ref, *self._after_prompt_row(row, request))
            case WorkKey.SPECULATIVE:
                raise AssertionError(f"{row.work} does not run in this version")
            case _:
                assert_never(row.work)

    def _said_before(self, row: Row, request: Request, gate_open: bool) -> bool:  # noqa: FBT001  # what the gate said
        """What the gate said one loop earlier; what it says now is kept for the next."""
        due = row.output_idx, row.loops_done
        said = self._signals.get(request.ref)
        self._signals[request.ref] = _Signal(row.output_idx, row.loops_done + 1, gate_open)
        return said is not None and said[:2] == due and said.is_open

    # ---- asynchronously: work goes on before results come ------------------------------------

    def advance(self, batch: Batch) -> None:
        """A batch was submitted: record the work that follows whatever its results are."""
        ticket = batch.ticket
        submitted = self._state.tickets[ticket].submitted_seq
        for row in batch.rows:
            request = self._state.by_id[row.spec.request_id]
            following = self._after_submission(row, request)
            if following is not None:
                fact = Enqueued(request.ref, *following)
                self._recorder.record(fact, ticket=ticket, cause=submitted)

    def _after_submission(self, row: Row, request: Request) -> NextWork | None:
        match row.work:
            case WorkKey.DECODE_RECURRENT:
                return self._decided(row, request, row.loops_done + 1)
            case WorkKey.DECODE_PRELUDE:
                self._signals.pop(request.ref, None)  # a new token
                return WorkKey.DECODE_RECURRENT, None
            case WorkKey.DECODE_CODA:  # its token stays on the device for the prelude
                is_last = row.output_idx + 1 >= row.spec.params.max_tokens
                return None if is_last else (WorkKey.DECODE_PRELUDE, None)
            case WorkKey.PROMPT_ATOMIC | WorkKey.PROMPT_PRELUDE | WorkKey.PROMPT_RECURRENT:
                return self._after_prompt_row(row, request)
            case WorkKey.SPECULATIVE:
                raise AssertionError(f"{row.work} does not run in this version")
            case _:
                assert_never(row.work)

    def _decided(self, row: Row, request: Request, loops: int) -> NextWork | None:
        """What follows loop `loops` of a row's token; None while the gate's word is missing."""
        told_by, gate_open = loops - 1, False
        if asks_gate(row.spec, loops, row.max_loops, told_by=told_by):
            said = self._signals.get(request.ref)
            if said is None or said[:2] != (row.output_idx, told_by):
                self._undecided[request.ref] = row.output_idx, told_by
                return None
            gate_open = said.is_open
        self._undecided.pop(request.ref, None)
        if exits_loop(row.spec, loops, row.max_loops, gate_open=gate_open, told_by=told_by):
            return WorkKey.DECODE_CODA, loops
        return WorkKey.DECODE_RECURRENT, None

    def _follow_late(
        self, ticket: int, row: Row, request: Request, *, gate_open: bool, cause: int
    ) -> None:
        """Record what a result that came late decides: an end, or what follows the loop that was
        submitted meanwhile.
        """
        if row.work is WorkKey.DECODE_CODA:
            reason = self._finish_reason(row, request)
            if reason is not None:
                fact = Finished(request.ref, reason)
                self._recorder.record(fact, ticket=ticket, cause=cause)
        elif row.work is WorkKey.DECODE_RECURRENT:
            loops = row.loops_done + 1
            if not asks_gate(row.spec, loops + 1, row.max_loops, told_by=loops):
                return
            self._signals[request.ref] = _Signal(row.output_idx, loops, gate_open)
            if self._undecided.get(request.ref) == (row.output_idx, loops):
                following = self._decided(row, request, loops + 1)
                assert following is not None, "the signal is there"
                self._recorder.record(
                    Enqueued(request.ref, *following), ticket=request.taken_ticket, cause=cause
                )

    # ---- both --------------------------------------------------------------------------------

    def _finish_reason(self, row: Row, request: Request) -> FinishReason | None:
        return finish_reason(self._state.model, row.spec, row.output_idx + 1, request.outputs[-1])

    def _after_prompt_row(self, row: Row, request: Request) -> NextWork:
        """What follows a prompt row; the request's frontiers do not count that row yet."""
        depths = self._state.model.depths
        end = row.token_start + row.token_count
        match row.work:
            case WorkKey.PROMPT_ATOMIC:
                finished, waiting = end, 0
            case WorkKey.PROMPT_PRELUDE:
                return WorkKey.PROMPT_RECURRENT, None
            case _:
                assert row.depth is not None, "a split prompt row has a depth"
                finished = end if row.depth == depths - 1 else request.prefilled_tokens
                waiting = request.preluded_tokens - finished
        if finished == request.prefill_tokens:
            if request.outputs:  # replayed: the next output's input is computed, none is sampled
                return WorkKey.DECODE_PRELUDE, None
            return WorkKey.DECODE_CODA, depths
        if row.work is WorkKey.PROMPT_ATOMIC:
            return WorkKey.PROMPT_ATOMIC, None
        return (WorkKey.PROMPT_RECURRENT if waiting else WorkKey.PROMPT_PRELUDE), None

    def _publish(self, row: Row, request: Request, settled: int) -> None:
        """Enter the prompt pages that are computed at every depth into the prefix cache."""
        finished = request.prefilled_tokens
        if self._is_async:  # later rows may be on their way: count to the end of this one
            if row.work is not WorkKey.PROMPT_ATOMIC and row.depth != self._state.model.depths - 1:
                return
            finished = row.token_start + row.token_count
        complete = request.page_keys[: finished // self._state.block_size]
        missing = [page for page, key in enumerate(complete) if key not in self._state.prefixes]
        for start, end in _runs(missing):
            blocks = tuple(block for plane in request.block_table for block in plane[start:end])
            self._recorder.record(Published(request.ref, start, blocks), cause=settled)


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    """Ascending page numbers as half-open runs: [0, 1, 4] is [(0, 2), (4, 5)]."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and runs[-1][1] == page:
            runs[-1] = (runs[-1][0], page + 1)
        else:
            runs.append((page, page + 1))
    return runs
