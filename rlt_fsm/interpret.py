"""Results → facts: what a finished batch means for each of its rows. Late results are refused."""

from typing import assert_never

from .batch import Batch, BatchResult, ModelFacts, RequestSpec, Row
from .events import (
    BatchCompleted,
    BatchFailed,
    BatchRetired,
    Dropped,
    Enqueued,
    Finished,
    OutputSampled,
    Published,
    Retired,
)
from .outputs import RequestOutput
from .recorder import Recorder
from .state import EngineState, Request
from .states import PROMPT_WORKS, FinishReason, Operation, WorkKey


def interpret(
    state: EngineState, recorder: Recorder, batch: Batch, result: BatchResult
) -> list[Request]:
    """Record what a completed batch brought; return the requests that got an output, in row order.

    Requests that ended are still to be retired (`retire_batch`).
    """
    ticket = batch.ticket
    assert result.ticket == ticket, f"ticket {result.ticket} where {ticket} was due"
    completed = recorder.record(
        BatchCompleted(), ticket=ticket, cause=state.tickets[ticket].submitted_seq
    )
    owners = [_owner(state, row, ticket) for row in batch.rows]
    causes = _record_outputs(recorder, batch, result, owners, completed)
    for i, (row, request) in enumerate(zip(batch.rows, owners, strict=True)):
        if request is None:
            _drop(recorder, state, batch, i, completed)
            continue
        gate_open = bool(result.exits) and result.exits[i]
        following = _next_work(state.model, row, request, gate_open=gate_open)
        fact: Finished | Enqueued
        if isinstance(following, FinishReason):
            fact = Finished(request.ref, following)
        else:
            fact = Enqueued(request.ref, *following)
        recorder.record(fact, ticket=ticket, cause=causes.get(i, completed))
        if request.page_keys and row.work in PROMPT_WORKS:
            _publish(state, recorder, request, completed)
    return [request for i, request in enumerate(owners) if request is not None and i in causes]


def interpret_failure(
    state: EngineState, recorder: Recorder, batch: Batch, message: str
) -> list[Request]:
    """The device failed a batch: its live requests end with `error`; the engine goes on."""
    ticket = batch.ticket
    failed = recorder.record(
        BatchFailed(message), ticket=ticket, cause=state.tickets[ticket].submitted_seq
    )
    ended: list[Request] = []
    for i, row in enumerate(batch.rows):
        request = _owner(state, row, ticket)
        if request is None:
            _drop(recorder, state, batch, i, failed)
        else:
            recorder.record(Finished(request.ref, FinishReason.ERROR), ticket=ticket, cause=failed)
            ended.append(request)
    return ended


def retire_batch(state: EngineState, recorder: Recorder, batch: Batch) -> None:
    """Nothing of the batch runs any more."""
    settled = state.tickets[batch.ticket].settled_seq
    recorder.record(BatchRetired(), ticket=batch.ticket, cause=settled)


def retire(recorder: Recorder, request: Request) -> None:
    """Give back everything that an ended request holds."""
    recorder.record(Retired(request.ref, request.block_ids), cause=request.ended_seq)


def output_of(request: Request) -> RequestOutput:
    """What the caller sees of a request now."""
    wants_logprobs = request.spec.params.logprobs is not None
    return RequestOutput(
        request_id=request.spec.request_id,
        prompt_token_ids=request.spec.prompt_token_ids,
        token_ids=list(request.outputs),
        exit_depths=list(request.exit_depths),
        finished=request.finish_reason is not None,
        finish_reason=request.finish_reason,
        logprobs=list(request.logprobs) if wants_logprobs else None,
    )


def _owner(state: EngineState, row: Row, ticket: int) -> Request | None:
    """The live request that this row was taken from, in this ticket; None for a late result."""
    request = state.by_id.get(row.spec.request_id)
    if request is None or request.spec.generation != row.spec.generation:
        return None
    return request if request.taken is not None and request.taken_ticket == ticket else None


def _drop(recorder: Recorder, state: EngineState, batch: Batch, i: int, cause: int) -> None:
    ref = state.tickets[batch.ticket].refs[i]
    recorder.record(Dropped(ref, f"late row={i}"), ticket=batch.ticket, cause=cause)


def _record_outputs(
    recorder: Recorder,
    batch: Batch,
    result: BatchResult,
    owners: list[Request | None],
    completed: int,
) -> dict[int, int]:
    """Record what the coda rows sampled; row → seq of its output."""
    seqs: dict[int, int] = {}
    if batch.operation is not Operation.CODA:
        return seqs
    for i, (row, request) in enumerate(zip(batch.rows, owners, strict=True)):
        if request is not None:
            logprob = result.logprobs[i] if result.logprobs else None
            token = result.token_ids[i]
            note = result.notes[i] if result.notes else None
            fact = OutputSampled(request.ref, row.output_idx, token, row.loops_done, logprob, note)
            seqs[i] = recorder.record(fact, ticket=batch.ticket, cause=completed)
    return seqs


def _publish(state: EngineState, recorder: Recorder, request: Request, completed: int) -> None:
    """Enter the prompt pages that are computed at every depth into the prefix cache."""
    complete = request.page_keys[: request.prefilled_tokens // state.block_size]
    missing = [page for page, key in enumerate(complete) if key not in state.prefixes]
    for start, end in _runs(missing):
        blocks = tuple(block for plane in request.block_table for block in plane[start:end])
        recorder.record(Published(request.ref, start, blocks), cause=completed)


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    """Ascending page numbers as half-open runs: [0, 1, 4] is [(0, 2), (4, 5)]."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and runs[-1][1] == page:
            runs[-1] = (runs[-1][0], page + 1)
        else:
            runs.append((page, page + 1))
    return runs


NextWork = tuple[WorkKey, int | None]  # (key, exit depth where it is DECODE_CODA)


def _next_work(
    model: ModelFacts, row: Row, request: Request, *, gate_open: bool
) -> NextWork | FinishReason:
    """What follows a computed row: work, or the end of the request."""
    match row.work:
        case WorkKey.DECODE_RECURRENT:
            loops = row.loops_done + 1
            if exits_loop(row.spec, loops, row.max_loops, gate_open=gate_open):
                return WorkKey.DECODE_CODA, loops
            return WorkKey.DECODE_RECURRENT, None
        case WorkKey.DECODE_PRELUDE:
            return WorkKey.DECODE_RECURRENT, None
        case WorkKey.DECODE_CODA:
            reason = finish_reason(model, row.spec, row.output_idx + 1, request.outputs[-1])
            return reason if reason is not None else (WorkKey.DECODE_PRELUDE, None)
        case WorkKey.PROMPT_ATOMIC | WorkKey.PROMPT_PRELUDE | WorkKey.PROMPT_RECURRENT:
            return _after_prompt_row(model, row, request)
        case WorkKey.SPECULATIVE:
            raise AssertionError(f"{row.work} does not run in this version")
        case _:
            assert_never(row.work)


def _after_prompt_row(model: ModelFacts, row: Row, request: Request) -> NextWork:
    """What follows a prompt row; the request's frontiers do not count that row yet."""
    end = row.token_start + row.token_count
    match row.work:
        case WorkKey.PROMPT_ATOMIC:
            finished, waiting = end, 0
        case WorkKey.PROMPT_PRELUDE:
            return WorkKey.PROMPT_RECURRENT, None
        case _:
            assert row.depth is not None, "a split prompt row has a depth"
            finished = end if row.depth == model.depths - 1 else request.prefilled_tokens
            waiting = request.preluded_tokens - finished
    if finished == request.prefill_tokens:
        if request.outputs:  # replayed: the next output's input is computed, nothing is sampled
            return WorkKey.DECODE_PRELUDE, None
        return WorkKey.DECODE_CODA, model.depths
    if row.work is WorkKey.PROMPT_ATOMIC:
        return WorkKey.PROMPT_ATOMIC, None
    return (WorkKey.PROMPT_RECURRENT if waiting else WorkKey.PROMPT_PRELUDE), None


def exits_loop(spec: RequestSpec, loops: int, max_loops: int, *, gate_open: bool) -> bool:
    """The exit rule after `loops` loops of a token (Ouro, cumulative hazard).

    A forced depth decides alone. Else the token leaves at `max_loops`, or from `min_loops` on when
    the gate's cumulative exit probability has reached a threshold below 1.
    """
    params = spec.params
    if params.exit_depths is not None or loops >= max_loops:
        return loops >= max_loops
    return gate_open and params.exit_threshold < 1 and loops >= params.min_loops


def finish_reason(
    model: ModelFacts, spec: RequestSpec, outputs: int, token: int
) -> FinishReason | None:
    """Whether output number `outputs` (1-based) ends the request.

    A stop id stops even with ignore_eos; EOS stops unless ignored; neither before `min_tokens`
    outputs; stop comes before length on the same token.
    """
    params = spec.params
    if outputs >= params.min_tokens:
        if token in params.stop_token_ids:
            return FinishReason.STOP
        if not params.ignore_eos and token in model.eos_token_ids:
            return FinishReason.STOP
    return FinishReason.LENGTH if outputs >= params.max_tokens else None
