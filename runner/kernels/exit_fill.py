"""Copy an exited token's K and V of every layer to the planes deeper than its exit."""

import triton
import triton.language as tl
from torch import Tensor

from .paging import PagedRows, power_of_two


@triton.jit
def _fill(
    keys, values, tables, slots, loops, positions,
    stride_block, stride_layer, stride_position, stride_slot, stride_plane,
    PLANES: tl.constexpr, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    slot, loop = tl.load(slots + row), tl.load(loops + row)
    if slot < 0 or loop >= PLANES:
        return
    position = tl.load(positions + row)
    entry = tables + slot * stride_slot + position // BLOCK_SIZE
    within = layer * stride_layer + (position % BLOCK_SIZE) * stride_position
    elements = tl.arange(0, SIZE_PAD)
    mask = elements < SIZE
    source = tl.load(entry + (loop - 1) * stride_plane).to(tl.int64) * stride_block + within
    key = tl.load(keys + source + elements, mask=mask)
    value = tl.load(values + source + elements, mask=mask)
    for plane in range(loop, PLANES):
        target = tl.load(entry + plane * stride_plane).to(tl.int64) * stride_block + within
        tl.store(keys + target + elements, key, mask=mask)
        tl.store(values + target + elements, value, mask=mask)


def fill_exits(keys: Tensor, values: Tensor, rows: PagedRows, loops: Tensor) -> None:
    """Fill planes `loops[i]`.. of row i's position from plane `loops[i] - 1`; full depth: nothing.

    keys and values are whole pools [blocks, layers, block_size, kv_heads, head_dim]; loops int32
    [rows], 1-based; the rows' planes are not looked at.
    """
    size = keys.shape[3] * keys.shape[4]
    _fill[(rows.slots.shape[0], keys.shape[1])](
        keys, values, rows.tables, rows.slots, loops, rows.positions,
        keys.stride(0), keys.stride(1), keys.stride(2),
        rows.tables.stride(0), rows.tables.stride(1),
        PLANES=rows.tables.shape[1], SIZE=size, SIZE_PAD=power_of_two(size),
        BLOCK_SIZE=keys.shape[2], num_warps=4,
    )  # fmt: skip
