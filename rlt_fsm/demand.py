"""What a request must find in KV blocks to enter, to resume, to go on. Arithmetic on the state."""

from typing import NamedTuple

from .blocks import blocks_needed
from .prefixes import Page
from .state import EngineState, Request


class Demand(NamedTuple):
    """What entering asks for, in blocks.

    `need` covers its positions, shared pages included. `total` must be obtainable for entering to
    be wise (pages that only the prefix cache holds and that it will share included), `take` is
    taken at once, `shared` are the prefix pages it finds.
    """

    need: int
    total: int
    take: int
    shared: list[Page]


def entry_demand(state: EngineState, request: Request) -> Demand:
    """What a waiting request must find to enter or resume."""
    if request.kv != "NONE":
        # With its next token's blocks, or it would wait for them and be preempted before it ran.
        take = request.host_blocks if request.kv == "OFFLOADED" else 0
        held = request.blocks + take
        need = max(held, _blocks(state, next_tokens(request)))
        return Demand(need, need - request.blocks, take, [])
    shared = state.prefixes.run(request.page_keys)
    own = len(shared) * state.planes
    first = _blocks(state, _initial_tokens(state, request, len(shared)))
    need = max(first, _blocks(state, _budget_tokens(state, request)))
    return Demand(need, need - own + claimed(state, shared), first - own, shared)


def growth_demand(state: EngineState, request: Request, tokens: int) -> int:
    """Blocks missing until `tokens` positions of a running request lie in blocks."""
    if tokens <= request.covered_tokens:
        return 0
    return _blocks(state, tokens) - request.blocks


def next_tokens(request: Request) -> int:
    """Positions that must lie in blocks before a request can be asked for its next token."""
    if request.in_prefill:
        return request.prefill_tokens
    return min(request.prompt_len + request.scheduled_outputs, request.capacity_tokens)


def claimed(state: EngineState, shared: list[Page]) -> int:
    """How many blocks of `shared` only the cache holds: obtainable until they are shared."""
    return sum(1 for page in shared for block in page if not state.pool.references(block))


def promised(state: EngineState, request: Request) -> int:
    """Blocks that a running request was admitted for, or needs for its next token, and has not
    taken yet.

    Without the next token's, what enters beside it would be preempted for it at once.
    """
    if not state.config.cache.incremental_allocation:
        return 0
    preempts = state.config.scheduler.enable_preemption
    tokens = next_tokens(request) if preempts else request.capacity_tokens
    return growth_demand(state, request, tokens)


def watermark(state: EngineState) -> int:
    """Blocks left free while anything is active; an idle engine may start a big request."""
    ratio = state.config.cache.watermark_ratio
    return int(ratio * state.pool.num_blocks) if state.slots_held else 0


def _blocks(state: EngineState, tokens: int) -> int:
    return blocks_needed(tokens, state.block_size, state.planes)


def _initial_tokens(state: EngineState, request: Request, shared_pages: int) -> int:
    """Positions that get blocks at once: everything, or the first chunk."""
    if not state.config.cache.incremental_allocation:
        return request.capacity_tokens
    chunk = state.config.scheduler.prefill_chunk_size
    return min(request.prefill_tokens, shared_pages * state.block_size + chunk)


def _budget_tokens(state: EngineState, request: Request) -> int:
    """Positions that must be obtainable at admission.

    Everything, so that it can always finish; only the prefill where blocks are taken as they are
    needed and preemption can find more later.
    """
    if state.config.cache.incremental_allocation and state.config.scheduler.enable_preemption:
        return request.prefill_tokens
    return request.capacity_tokens
