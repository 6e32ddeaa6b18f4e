"""The row that a request's pending work makes. Decides its range by the state alone."""

from typing import NamedTuple, assert_never

from .batch import Row
from .state import EngineState, Request
from .states import WorkKey


class Range(NamedTuple):
    """Token positions [start, start + tokens) at a depth (None: see `Row.depth`)."""

    start: int
    tokens: int
    depth: int | None


def next_range(state: EngineState, request: Request, key: WorkKey, budget: int) -> Range:
    """What the pending work covers next, at most `budget` tokens."""
    match key:
        case WorkKey.PROMPT_ATOMIC:
            start = request.prefilled_tokens
            count = min(budget, _chunk(state), request.prefill_tokens - start)
            return Range(start, count, None)
        case WorkKey.PROMPT_PRELUDE:
            start = request.preluded_tokens
            count = min(budget, _chunk(state), request.prefill_tokens - start)
            return Range(start, count, None)
        case WorkKey.PROMPT_RECURRENT:
            return _deepest_interval(state, request, min(budget, _chunk(state)))
        case WorkKey.DECODE_RECURRENT:
            return Range(request.position, 1, request.loops_done)
        case WorkKey.DECODE_PRELUDE | WorkKey.DECODE_CODA:
            return Range(request.position, 1, None)
        case WorkKey.SPECULATIVE:
            raise AssertionError(f"{key} does not run in this version")
        case _:
            assert_never(key)


def _chunk(state: EngineState) -> int:
    return state.config.scheduler.prefill_chunk_size


def _deepest_interval(state: EngineState, request: Request, most: int) -> Range:
    """The deepest waiting interval of a split prompt, so that the oldest tokens finish first.

    Shared layout: one token, since position p + 1 reads p's final version at every depth.
    """
    frontiers = request.frontiers
    depth = max(d for d in range(len(frontiers) - 1) if frontiers[d + 1] < frontiers[d])
    start, end = frontiers[depth + 1], frontiers[depth]
    if state.config.cache.layout == "shared":
        most = 1
    return Range(start, min(most, end - start), depth)


def positions_needed(key: WorkKey, span: Range) -> int:
    """Positions that must lie in blocks before the row may run; 0 where it touches no KV."""
    return 0 if key is WorkKey.DECODE_CODA else span.start + span.tokens


def make_row(state: EngineState, request: Request, key: WorkKey, span: Range) -> Row:
    """The row of a selected request."""
    decoding = key in {WorkKey.DECODE_RECURRENT, WorkKey.DECODE_CODA}
    replay = request.replaying
    tokens, depths = _replayed(state, request, span) if replay else ((), ())
    return Row(
        spec=request.spec,
        work=key,
        token_start=span.start,
        token_count=span.tokens,
        depth=span.depth,
        replay=replay,
        output_idx=len(request.outputs),
        loops_done=request.loops_done if decoding else 0,
        max_loops=loops_allowed(state, request),
        last_token=request.outputs[-1] if key is WorkKey.DECODE_PRELUDE else -1,
        state_row=request.state_row,
        block_table=request.block_table,
        replay_tokens=tokens,
        replay_depths=depths,
    )


def loops_allowed(state: EngineState, request: Request) -> int:
    """The most loops the request's next output may run; a forced depth is exactly that.

    Output 0 comes from the prompt, which always runs every loop.
    """
    params = request.spec.params
    if not request.outputs:
        return state.model.depths
    if params.exit_depths is not None:
        return params.exit_depths[len(request.outputs)]
    return state.model.depths if params.max_loops is None else params.max_loops


def _replayed(
    state: EngineState, request: Request, span: Range
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens of a replayed range and the loops each runs.

    Prompt tokens run every loop. Output i is the input of output i + 1 and ran that one's depth.
    """
    prompt = request.spec.prompt_token_ids
    tokens = (*prompt, *request.outputs[:-1])
    depths = (state.model.depths,) * len(prompt) + tuple(request.exit_depths[1:])
    end = span.start + span.tokens
    return tokens[span.start : end], depths[span.start : end]
