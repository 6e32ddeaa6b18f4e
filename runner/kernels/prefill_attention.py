"""Causal attention of prompt chunks: tiles of consecutive positions over their paged history."""

import triton
import triton.language as tl
from torch import Tensor

from .attending import page_addresses, product
from .paging import TILE_ROWS, PagedRows, Tiles, power_of_two


@triton.jit
def _prefill(
    q, keys, values, out, tables, slots, planes, positions, tile_first, tile_count,
    stride_q, stride_block, stride_position, stride_slot, stride_plane, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    count = tl.load(tile_count + tile)
    if count == 0:
        return
    first_row = tl.load(tile_first + tile)
    slot, plane = tl.load(slots + first_row), tl.load(planes + first_row)
    first_position = tl.load(positions + first_row)
    table = tables + slot * stride_slot + plane * stride_plane
    in_tile = tl.arange(0, ROWS)
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    rows = (first_row + in_tile).to(tl.int64)
    mask_q = (in_tile < count)[:, None] & in_head[None, :]
    at_q = rows[:, None] * stride_q + head * HEAD_DIM + dims[None, :]
    query = tl.load(q + at_q, mask=mask_q, other=0.0)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, HEAD_PAD], tl.float32)
    own = first_position + in_tile
    end = first_position + count
    for first in range(0, end, TILE):
        others = first + lanes
        live = others < end
        at = page_addresses(table, others, live, stride_block, stride_position, BLOCK_SIZE)
        at += (head // GROUP) * HEAD_DIM
        key = tl.load(
            keys + at[None, :] + dims[:, None], mask=live[None, :] & in_head[:, None], other=0.0
        )
        value = tl.load(
            values + at[:, None] + dims[None, :], mask=live[:, None] & in_head[None, :], other=0.0
        )
        score = product(query, key, tl.zeros([ROWS, TILE], tl.float32), WIDEN) * scale
        score = tl.where(others[None, :] <= own[:, None], score, float("-inf"))
        # Finite from the first tile on: every row sees position 0.
        new_peak = tl.maximum(peak, tl.max(score, axis=1))
        decay = tl.exp2(peak - new_peak)
        weight = tl.exp2(score - new_peak[:, None])
        total = total * decay + tl.sum(weight, axis=1)
        summed = product(weight.to(value.dtype), value, summed * decay[:, None], WIDEN)
        peak = new_peak
    at_out = rows[:, None] * (HEADS * HEAD_DIM) + head * HEAD_DIM + dims[None, :]
    tl.store(out + at_out, summed / total[:, None], mask=mask_q)


def prefill_attention(
    q: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, tiles: Tiles, out: Tensor
) -> None:
    """Attend from the rows of `tiles` to positions 0..own of their planes.

    Shapes as for `decode_attention`; K and V of these rows are in the pool already. Rows outside
    the tiles are left alone.
    """
    heads, head_dim = q.shape[1], q.shape[2]
    block_size, kv_heads = keys.shape[1], keys.shape[2]
    is_wide = q.element_size() == 4  # bytes of fp32
    _prefill[(tiles.firsts.shape[0], heads)](
        q, keys, values, out, rows.tables, rows.slots, rows.planes, rows.positions,
        tiles.firsts, tiles.counts, q.stride(0), keys.stride(0), keys.stride(1),
        rows.tables.stride(0), rows.tables.stride(1), head_dim**-0.5 * 1.4426950408889634,
        HEADS=heads, GROUP=heads // kv_heads, HEAD_DIM=head_dim,
        HEAD_PAD=max(16, power_of_two(head_dim)), BLOCK_SIZE=block_size,
        ROWS=TILE_ROWS, TILE=32 if is_wide else 64, WIDEN=not q.is_cuda,
        num_warps=4, num_stages=1 if is_wide else 2,
    )  # fmt: skip
