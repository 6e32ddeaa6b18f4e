"""Attention of single positions: every row reads positions 0..p of its own plane, page by page.

The context may be split over programs. How it is split depends on a row's own length and on
`splits` alone, so with a fixed `splits` a row's result does not depend on its batch mates.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .attending import attend_head_group, attend_one_head, join_own_position, rotated_head
from .paging import PagedRows, power_of_two


@triton.jit
def _decode(
    q, k, v, keys, values, cosines, sines, out, partial, sums, tables, slots, planes, positions,
    stride_q, stride_k, stride_block, stride_position, stride_slot, stride_plane, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr,
    WRITE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    # Heads of one row next to each other: they read the same pages.
    head, split, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + row)
    length = tl.where(slot < 0, 0, tl.load(positions + row) + 1)
    per_split = tl.cdiv(tl.cdiv(length, TILE), SPLITS) * TILE
    start = split * per_split
    end = tl.minimum(start + per_split, length)
    # With WRITE the row's own position is not in the pool yet: it comes from k and v.
    read = length - 1 if WRITE else length
    table = tables + tl.maximum(slot, 0) * stride_slot + tl.load(planes + row) * stride_plane
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    first_head = head * GROUP
    query = q + row * stride_q + first_head * HEAD_DIM
    part = ((row * KV_HEADS * GROUP + first_head) * SPLITS + split).to(tl.int64)
    done = (row * KV_HEADS * GROUP + first_head).to(tl.int64) * HEAD_DIM
    if GROUP == 1:
        position = tl.maximum(length - 1, 0)
        turned = rotated_head(query, cosines, sines, position, HEAD_DIM, HEAD_PAD, WRITE) * scale
        summed, peak, total = attend_one_head(
            turned, keys, values, table, start, tl.minimum(end, read), head, stride_block,
            stride_position, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, TILE,
        )  # fmt: skip
        if WRITE:
            is_here = (start <= position) & (position < end)
            if is_here:
                at = row * stride_k + head * HEAD_DIM
                summed, peak, total = join_own_position(
                    summed, peak, total, turned, k + at, v + at, keys, values, cosines, sines,
                    table, position, head, stride_block, stride_position,
                    HEAD_DIM, HEAD_PAD, BLOCK_SIZE,
                )  # fmt: skip
        if SPLITS == 1:
            result = summed / tl.where(total > 0.0, total, 1.0)
            tl.store(out + done + dims, result, mask=in_head)
        else:
            tl.store(partial + part * HEAD_DIM + dims, summed, mask=in_head)
            tl.store(sums + part * 2, peak)
            tl.store(sums + part * 2 + 1, total)
    else:
        tl.static_assert(not WRITE, "query heads of one KV head write it before they read it")
        heads = tl.arange(0, GROUP_PAD)
        in_group = heads < GROUP
        summed, peak, total = attend_head_group(
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
    _launch(q, None, keys, values, rows, None, out, splits)


def decode_and_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    rotation: tuple[Tensor, Tensor],
    out: Tensor,
    *,
    splits: int = 1,
) -> None:
    """`write_kv` and `decode_attention` in one launch, q left as it is: as many heads as KV heads.

    k and v [rows, kv_heads, head_dim], strided alike.
    """
    assert k.shape[1] == q.shape[1], "query heads of one KV head write it before they read it"
    assert k.stride(0) == v.stride(0), (k.stride(), v.stride())
    _launch(q, (k, v), keys, values, rows, rotation, out, splits)


def _launch(
    q: Tensor,
    written: tuple[Tensor, Tensor] | None,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    rotation: tuple[Tensor, Tensor] | None,
    out: Tensor,
    splits: int,
) -> None:
    count, heads, head_dim = q.shape
    block_size, kv_heads = keys.shape[1], keys.shape[2]
    group, head_pad = heads // kv_heads, max(16, power_of_two(head_dim))
    k, v = written if written is not None else (q, q)
    cosines, sines = rotation if rotation is not None else (q, q)
    partial = sums = out
    if splits > 1:
        partial = torch.empty(
            (count, heads, splits, head_dim), dtype=torch.float32, device=q.device
        )
        sums = torch.empty((count, heads, splits, 2), dtype=torch.float32, device=q.device)
    tile, warps = (16, 2) if group == 1 else (32, 4)
    _decode[(kv_heads, splits, count)](
        q, k, v, keys, values, cosines, sines, out, partial, sums,
        rows.tables, rows.slots, rows.planes, rows.positions,
        q.stride(0), k.stride(0), keys.stride(0), keys.stride(1),
        rows.tables.stride(0), rows.tables.stride(1), head_dim**-0.5 * 1.4426950408889634,
        KV_HEADS=kv_heads, GROUP=group, GROUP_PAD=max(16, power_of_two(group)),
        HEAD_DIM=head_dim, HEAD_PAD=head_pad, BLOCK_SIZE=block_size,
        TILE=tile, SPLITS=splits, WRITE=written is not None, WIDEN=not q.is_cuda, num_warps=warps,
    )  # fmt: skip
    if splits > 1:
        _join[(count * heads,)](
            partial, sums, out, HEAD_DIM=head_dim, HEAD_PAD=head_pad, SPLITS=splits, num_warps=1
        )
