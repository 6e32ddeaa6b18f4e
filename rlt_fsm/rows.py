"""The row that a request's pending work makes. Decides its range by the state alone."""

from .batch import Row
from .state import EngineState, Request
from .states import WorkKey


def next_row(state: EngineState, request: Request, key: WorkKey, budget: int) -> Row:
    """The row of a request's pending work, at most `budget` tokens long.

    Decode work is one position: that of the newest token, or the one whose hidden state a coda
    reads.
    """
    if key in _PROMPT_RANGES:
        return _prompt_row(state, request, key, budget)
    idx = len(request.outputs) + request.undelivered
    forced = request.spec.params.exit_depths
    loops_done = 0 if key is WorkKey.DECODE_PRELUDE else request.loops_done
    return Row(
        spec=request.spec,
        work=key,
        token_start=request.prompt_len + idx - 1,
        token_count=1,
        depth=loops_done if key is WorkKey.DECODE_RECURRENT else None,
        replay=False,
        output_idx=idx,
        loops_done=loops_done,
        max_loops=request.most_loops if forced is None or not idx else forced[idx],
        last_token=_last_token(request) if key is WorkKey.DECODE_PRELUDE else -1,
        state_row=request.state_row,
        block_table=request.block_table,
    )


def _last_token(request: Request) -> int:
    """The token to embed; -1 where it is still being sampled, and known to the device alone."""
    return -1 if request.undelivered else request.outputs[-1]


def _prompt_row(state: EngineState, request: Request, key: WorkKey, budget: int) -> Row:
    """A chunk of the prompt, or of what a replay rebuilds; prompts run every loop."""
    most = min(budget, state.config.scheduler.prefill_chunk_size)
    start, count, depth = _PROMPT_RANGES[key](state, request, most)
    tokens, depths = _replayed(state, request, start, start + count)
    return Row(
        spec=request.spec,
        work=key,
        token_start=start,
        token_count=count,
        depth=depth,
        replay=request.replaying,
        output_idx=len(request.outputs),
        loops_done=0,
        max_loops=state.model.depths,
        last_token=-1,
        state_row=request.state_row,
        block_table=request.block_table,
        replay_tokens=tokens,
        replay_depths=depths,
    )


_Range = tuple[int, int, int | None]  # start, count, depth


def _atomic(state: EngineState, request: Request, most: int) -> _Range:  # noqa: ARG001  # one signature for all
    start = request.prefilled_tokens
    return start, min(most, request.prefill_tokens - start), None


def _prelude(state: EngineState, request: Request, most: int) -> _Range:  # noqa: ARG001  # the same
    start = request.preluded_tokens
    return start, min(most, request.prefill_tokens - start), None


def _deepest_interval(state: EngineState, request: Request, most: int) -> _Range:
    """The deepest waiting interval of a split prompt, so that the oldest tokens finish first.

    Shared layout: one token, since position p + 1 reads p's final version at every depth.
    """
    frontiers = request.frontiers
    depth = max(d for d in range(len(frontiers) - 1) if frontiers[d + 1] < frontiers[d])
    start, end = frontiers[depth + 1], frontiers[depth]
    if state.config.cache.layout == "shared":
        most = 1
    return start, min(most, end - start), depth


_PROMPT_RANGES = {
    WorkKey.PROMPT_ATOMIC: _atomic,
    WorkKey.PROMPT_PRELUDE: _prelude,
    WorkKey.PROMPT_RECURRENT: _deepest_interval,
}


def _replayed(
    state: EngineState, request: Request, start: int, end: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens of a replayed range and the loops each runs; nothing where it is no replay.

    Prompt tokens run every loop. Output i is the input of output i + 1 and ran that one's depth.
    """
    if not request.replaying:
        return (), ()
    prompt = request.spec.prompt_token_ids
    tokens = (*prompt, *request.outputs[:-1])
    depths = (state.model.depths,) * len(prompt) + tuple(request.exit_depths[1:])
    return tokens[start:end], depths[start:end]
