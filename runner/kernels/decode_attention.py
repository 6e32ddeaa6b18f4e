"""Attention of single positions: every row reads positions 0..p of its own plane, page by page.

The context may be split over programs. How it is split depends on a row's own length and on
`splits` alone, so with a fixed `splits` a row's result does not depend on its batch mates.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .paging import PagedRows, power_of_two


@triton.jit
def page_addresses(table, positions, live, stride_block, stride_position, BLOCK_SIZE: tl.constexpr):
    """Where each position's K or V begins in one layer of the pool, in elements."""
    block = tl.load(table + positions // BLOCK_SIZE, mask=live, other=0).to(tl.int64)
    return block * stride_block + (positions % BLOCK_SIZE) * stride_position


@triton.jit
def product(a, b, summed, WIDEN: tl.constexpr):
    """Multiply, and add to `summed`, without tf32. WIDEN: the interpreter cannot multiply bf16."""
    if WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, summed, input_precision="ieee")


@triton.jit
def _one_head(
    q, keys, values, table, start, end, head, stride_block, stride_position, scale,
    HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One query head. Each of TILE lanes keeps a softmax of its own; they meet once, at the end."""
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    query = tl.load(q + dims, mask=in_head, other=0.0).to(tl.float32) * scale
    peak = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    summed = tl.zeros([TILE, HEAD_PAD], tl.float32)
    for first in range(start, end, TILE):
        positions = first + lanes
        live = positions < end
        at = page_addresses(table, positions, live, stride_block, stride_position, BLOCK_SIZE)
        at = (at + head * HEAD_DIM)[:, None] + dims[None, :]
        mask = live[:, None] & in_head[None, :]
        key = tl.load(keys + at, mask=mask, other=0.0)
        value = tl.load(values + at, mask=mask, other=0.0)
        score = tl.sum(key.to(tl.float32) * query[None, :], axis=1)
        score = tl.where(live, score, float("-inf"))
        new_peak = tl.maximum(peak, score)
        # A lane that never had a position keeps -inf: subtract 0 there, for inf - inf is NaN.
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        decay = tl.exp2(peak - base)
        weight = tl.exp2(score - base)
        total = total * decay + weight
        summed = summed * decay[:, None] + weight[:, None] * value.to(tl.float32)
        peak = new_peak
    top = tl.max(peak, axis=0)
    share = tl.exp2(peak - tl.where(top == float("-inf"), 0.0, top))
    return tl.sum(summed * share[:, None], axis=0), top, tl.sum(total * share, axis=0)


@triton.jit
def _head_group(
    q, keys, values, table, start, end, head, stride_block, stride_position, scale,
    GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """All query heads of one KV head, by matrix products."""
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    heads = tl.arange(0, GROUP_PAD)
    mask_q = (heads < GROUP)[:, None] & in_head[None, :]
    query = tl.load(q + heads[:, None] * HEAD_DIM + dims[None, :], mask=mask_q, other=0.0)
    peak = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    summed = tl.zeros([GROUP_PAD, HEAD_PAD], tl.float32)
    for first in range(start, end, TILE):
        positions = first + lanes
        live = positions < end
        at = page_addresses(table, positions, live, stride_block, stride_position, BLOCK_SIZE)
        at += head * HEAD_DIM
        key = tl.load(
            keys + at[None, :] + dims[:, None], mask=live[None, :] & in_head[:, None], other=0.0
        )
        value = tl.load(
            values + at[:, None] + dims[None, :], mask=live[:, None] & in_head[None, :], other=0.0
        )
        nothing = tl.zeros([GROUP_PAD, TILE], tl.float32)
        score = product(query, key, nothing, WIDEN) * scale
        score = tl.where(live[None, :], score, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(score, axis=1))  # finite: a tile holds a position
        decay = tl.exp2(peak - new_peak)
        weight = tl.exp2(score - new_peak[:, None])
        total = total * decay + tl.sum(weight, axis=1)
        summed = product(weight.to(value.dtype), value, summed * decay[:, None], WIDEN)
        peak = new_peak
    return summed, peak, total


@triton.jit
def _decode(
    q, keys, values, out, partial, sums, tables, slots, planes, positions,
    stride_q, stride_block, stride_position, stride_slot, stride_plane, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + row)
    length = tl.where(slot < 0, 0, tl.load(positions + row) + 1)
    per_split = tl.cdiv(tl.cdiv(length, TILE), SPLITS) * TILE
    start = split * per_split
    end = tl.minimum(start + per_split, length)
    table = tables + tl.maximum(slot, 0) * stride_slot + tl.load(planes + row) * stride_plane
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    first_head = head * GROUP
    query = q + row * stride_q + first_head * HEAD_DIM
    part = ((row * KV_HEADS * GROUP + first_head) * SPLITS + split).to(tl.int64)
    done = (row * KV_HEADS * GROUP + first_head).to(tl.int64) * HEAD_DIM
    if GROUP == 1:
        summed, peak, total = _one_head(
            query, keys, values, table, start, end, head, stride_block, stride_position, scale,
            HEAD_DIM, HEAD_PAD, BLOCK_SIZE, TILE,
        )  # fmt: skip
        if SPLITS == 1:
            result = summed / tl.where(total > 0.0, total, 1.0)
            tl.store(out + done + dims, result, mask=in_head)
        else:
            tl.store(partial + part * HEAD_DIM + dims, summed, mask=in_head)
            tl.store(sums + part * 2, peak)
            tl.store(sums + part * 2 + 1, total)
    else:
        heads = tl.arange(0, GROUP_PAD)
        in_group = heads < GROUP
        summed, peak, total = _head_group(
            query, keys, values, table, start, end, head, stride_block, stride_position, scale,
            GROUP, GROUP_PAD, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, TILE, WIDEN,
        )  # fmt: skip
        mask = in_group[:, None] & in_head[None, :]
        if SPLITS == 1:
            result = summed / tl.where(total > 0.0, total, 1.0)[:, None]
            tl.store(out + done + heads[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
        else:
            parts = part + heads * SPLITS
            tl.store(partial + parts[:, None] * HEAD_DIM + dims[None, :], summed, mask=mask)
            tl.store(sums + parts * 2, peak, mask=in_group)
            tl.store(sums + parts * 2 + 1, total, mask=in_group)


@triton.jit
def _join(partial, sums, out, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, SPLITS: tl.constexpr):
    """Join the parts of one row and query head."""
    which = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    parts = which * SPLITS + tl.arange(0, SPLITS)
    peak = tl.load(sums + parts * 2)
    top = tl.max(peak, axis=0)
    share = tl.exp2(peak - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(tl.load(sums + parts * 2 + 1) * share, axis=0)
    at = parts[:, None] * HEAD_DIM + dims[None, :]
    summed = tl.load(partial + at, mask=in_head[None, :], other=0.0)
    result = tl.sum(summed * share[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + which * HEAD_DIM + dims, result, mask=in_head)


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, out: Tensor, *, splits: int = 1
) -> None:
    """Attend from every row to positions 0..p of its plane; zeros for padding rows.

    q and out [rows, heads, head_dim] (q's rows may be strided, out is contiguous); keys and values
    are one layer of the pool [blocks, block_size, kv_heads, head_dim]. `splits`, a power of two:
    programs per row and KV head.
    """
    count, heads, head_dim = q.shape
    block_size, kv_heads = keys.shape[1], keys.shape[2]
    group, head_pad = heads // kv_heads, max(16, power_of_two(head_dim))
    partial = sums = out
    if splits > 1:
        partial = torch.empty(
            (count, heads, splits, head_dim), dtype=torch.float32, device=q.device
        )
        sums = torch.empty((count, heads, splits, 2), dtype=torch.float32, device=q.device)
    _decode[(count, kv_heads, splits)](
        q, keys, values, out, partial, sums,
        rows.tables, rows.slots, rows.planes, rows.positions,
        q.stride(0), keys.stride(0), keys.stride(1),
        rows.tables.stride(0), rows.tables.stride(1), head_dim**-0.5 * 1.4426950408889634,
        KV_HEADS=kv_heads, GROUP=group, GROUP_PAD=max(16, power_of_two(group)),
        HEAD_DIM=head_dim, HEAD_PAD=head_pad, BLOCK_SIZE=block_size,
        TILE=32, SPLITS=splits, WIDEN=not q.is_cuda, num_warps=4,
    )  # fmt: skip
    if splits > 1:
        _join[(count * heads,)](
            partial, sums, out, HEAD_DIM=head_dim, HEAD_PAD=head_pad, SPLITS=splits, num_warps=1
        )
