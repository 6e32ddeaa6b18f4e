"""What events do to blocks, snapshots, state rows and prefix pages, for `fold.py` alone."""

from collections.abc import Sequence

from rlt_fsm.machines import HELD, OFFLOADED

from .facts import BlockData
from .legality import Move
from .request_state import BlockTable, RequestState

Pages = dict[int, tuple[int, ...]]  # by first block, the oldest first


def hold(request: RequestState, move: Move, data: BlockData, step: int, planes: int) -> None:
    """Give the request, or take from it, what the move and its data tell."""
    for taken in (data.share, data.take):
        if taken:
            request.block_table = _extended(request.block_table, _planewise(taken, planes))
    if data.drop:
        request.block_table = _without(request.block_table, data.drop)
    if move.kv is not None:
        request.host_blocks = data.host_blocks if move.kv[1] == OFFLOADED else 0
    if move.slot is not None:
        is_held = move.slot[1] == HELD
        request.state_row = data.state_row if is_held else None
        request.seated_step = step if is_held else None


def keep_pages(pages: Pages, data: BlockData, planes: int) -> None:
    """What the prefix cache keeps after an event; a page's parents are newer than the page."""
    if data.share:
        for block in reversed(_planewise(data.share, planes)[0]):
            if block in pages:
                pages[block] = pages.pop(block)
    if data.publish:
        for page in reversed(list(zip(*_planewise(data.publish, planes), strict=True))):
            pages[page[0]] = page
    for block in _planewise(data.evict, planes)[0]:
        pages.pop(block, None)


def _planewise(blocks: Sequence[int], planes: int) -> BlockTable:
    """A plane-major list by planes: 4 ids over 2 planes are two pages."""
    pages, rest = divmod(len(blocks), planes)
    if rest:
        raise ValueError(f"{len(blocks)} blocks do not divide over {planes} planes")
    return tuple(tuple(blocks[p * pages : (p + 1) * pages]) for p in range(planes))


def _extended(table: BlockTable, more: BlockTable) -> BlockTable:
    if not table:
        return more
    return tuple(old + new for old, new in zip(table, more, strict=True))


def _without(table: BlockTable, blocks: Sequence[int]) -> BlockTable:
    dropped = set(blocks)
    left = tuple(tuple(block for block in plane if block not in dropped) for plane in table)
    return left if any(left) else ()
