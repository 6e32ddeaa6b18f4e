"""The fold's second room: what facts do to slots, state rows, blocks, snapshots and prefix pages.

Called by `apply` alone.
"""

from .blocks import extend_table
from .events import (
    Evicted,
    Offloaded,
    OffloadedResident,
    Published,
    Resumed,
    Rewound,
    Yielded,
)
from .moves import CHANGE, PLAIN_MOVE, STATUS_OF, WORK_OF, fire
from .state import EngineState, Request
from .states import WorkKey

Applied = tuple[int, int | None]  # (move, blocks the request references after it)

QUEUED_KEY = tuple(
    WorkKey(work.partition(":")[2]) if work.startswith("QUEUED:") else None for work in WORK_OF
)


def move_request(request: Request, trigger: str) -> int:
    """Fire a trigger on a request's machines; raises IllegalTransition and changes nothing."""
    move = fire(request.joint, trigger)
    request.joint += CHANGE[move]
    return move


# ---- slots and blocks ------------------------------------------------------------------------


def hold_slot(state: EngineState, request: Request, state_row: int) -> None:
    """A request takes a slot and the state row that the fact names."""
    assert state.has_slot(), "a slot is free"
    assert state.free_state_rows[-1] == state_row, "state rows are taken from the top"
    request.state_row = state.free_state_rows.pop()
    state.slots_held += 1


def free_slot(state: EngineState, request: Request) -> None:
    """A request gives back its slot and state row."""
    state.free_state_rows.append(request.state_row)
    request.state_row = -1
    state.slots_held -= 1


def take_blocks(state: EngineState, request: Request, blocks: tuple[int, ...]) -> None:
    """A request's table grows by free blocks, plane-major."""
    state.pool.take(blocks)
    if blocks and not request.blocks:
        state.holders.add(request)
    request.blocks += len(blocks)
    request.block_table = extend_table(request.block_table, blocks, state.planes)
    request.covered_tokens = len(request.block_table[0]) * state.block_size


def share_blocks(state: EngineState, request: Request, blocks: tuple[int, ...]) -> None:
    """A request's table starts with pages of the prefix cache, which become the newest."""
    state.pool.share(blocks)
    state.holders.add(request)
    request.blocks += len(blocks)
    request.block_table = extend_table((), blocks, state.planes)
    request.covered_tokens = len(request.block_table[0]) * state.block_size
    pages = len(blocks) // state.planes
    state.prefixes.touch(request.page_keys[:pages])


def drop_snapshot(state: EngineState, request: Request) -> None:
    """A request's offloaded KV leaves the host."""
    state.host_blocks -= request.host_blocks
    request.host_blocks = 0


def drop_blocks(state: EngineState, request: Request) -> None:
    """A request gives up every block it references."""
    if not request.blocks:
        return
    state.pool.drop(request.block_ids)
    state.holders.remove(request)
    request.blocks = 0
    request.block_table = ()
    request.covered_tokens = 0


# ---- preemption ------------------------------------------------------------------------------

_Preemption = Yielded | Offloaded | OffloadedResident | Resumed | Rewound


def apply_preemption(state: EngineState, fact: _Preemption, seq: int) -> Applied:
    """Fold a request's parking, offloading, rewinding or resuming."""
    request = state.by_ref[fact.ref]
    joint = request.joint
    move = move_request(request, fact.trigger)
    if isinstance(fact, Resumed):
        state.waiting.remove(request)
        request.verdict = None
        hold_slot(state, request, fact.state_row)
        take_blocks(state, request, fact.blocks)
        drop_snapshot(state, request)
        key = QUEUED_KEY[request.joint]
        assert key is not None
        state.queues[key][request] = None
        request.queued_seq = seq
        return move, request.blocks
    if (key := QUEUED_KEY[joint]) is not None:
        del state.queues[key][request]
    if STATUS_OF[joint] == "ACTIVE":
        free_slot(state, request)
        state.waiting.add(request)
        request.queued_seq = seq
        request.verdict = None
    if isinstance(fact, Offloaded | OffloadedResident):
        request.host_blocks = request.blocks
        state.host_blocks += request.blocks
    if not isinstance(fact, Yielded):
        assert fact.blocks_freed == request.block_ids, "every block comes back, and no other"
        drop_blocks(state, request)
    if isinstance(fact, Rewound):
        drop_snapshot(state, request)
        request.frontiers = [0] * len(request.frontiers)
        request.loops_done = 0
        request.replaying = True
        request.taken = None
        request.undelivered = 0
    return move, request.blocks


# ---- the prefix cache ------------------------------------------------------------------------


def apply_prefix(state: EngineState, fact: Published | Evicted) -> Applied:
    """Fold pages joining or leaving the prefix cache."""
    request = state.by_ref[fact.ref]
    planes = state.planes
    pages = len(fact.blocks) // planes
    columns = [fact.blocks[p * pages : (p + 1) * pages] for p in range(planes)]
    entries = list(zip(*columns, strict=True))  # one block per plane and page
    if isinstance(fact, Published):
        state.pool.publish(fact.blocks)
        keys = request.page_keys[fact.page_start : fact.page_start + pages]
        state.prefixes.add(keys, entries)
    else:
        for entry in entries:
            state.prefixes.remove(entry[0])
        state.pool.evict(fact.blocks)
    return PLAIN_MOVE[fact.trigger], request.blocks


def forget_prefixes(state: EngineState, blocks: tuple[int, ...]) -> None:
    """The memory was lost: the prefix cache keeps nothing, whoever references its pages."""
    for page in list(state.prefixes.oldest_first()):
        state.prefixes.remove(page[0])
    state.pool.forget(blocks)
