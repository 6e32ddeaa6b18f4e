"""Rotate q and k by their positions and store k and v into the pool, in one pass over the rows."""

import triton
import triton.language as tl
from torch import Tensor

from .paging import PagedRows, power_of_two

_HEADS_PER_PROGRAM = 4


@triton.jit
def _rotated(first, second, cos, sin):
    first, second = first.to(tl.float32), second.to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _write(
    q, k, v, keys, values, cosines, sines, tables, slots, planes, positions,
    stride_q, stride_k, stride_v, stride_block, stride_position, stride_slot, stride_plane,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROTATE: tl.constexpr, HEADS_PER_PROGRAM: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if slot < 0:
        return
    HALF: tl.constexpr = HEAD_DIM // 2
    position = tl.load(positions + row)
    table = tables + slot * stride_slot + tl.load(planes + row) * stride_plane
    block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
    at = block * stride_block + (position % BLOCK_SIZE) * stride_position
    head = tl.program_id(1) * HEADS_PER_PROGRAM + tl.arange(0, HEADS_PER_PROGRAM)
    dims = tl.arange(0, HALF_PAD)
    low = head[:, None] * HEAD_DIM + dims[None, :]  # the first half of each head; + HALF: the other
    in_half = (dims < HALF)[None, :]
    is_kv = (head < KV_HEADS)[:, None] & in_half
    key_low = tl.load(k + row * stride_k + low, mask=is_kv, other=0.0)
    key_high = tl.load(k + row * stride_k + low + HALF, mask=is_kv, other=0.0)
    if ROTATE:
        angle = position * HALF + dims
        cos = tl.load(cosines + angle, mask=dims < HALF, other=0.0).to(tl.float32)[None, :]
        sin = tl.load(sines + angle, mask=dims < HALF, other=0.0).to(tl.float32)[None, :]
        is_query = (head < HEADS)[:, None] & in_half
        query = q + row * stride_q + low
        query_low, query_high = _rotated(
            tl.load(query, mask=is_query, other=0.0),
            tl.load(query + HALF, mask=is_query, other=0.0),
            cos,
            sin,
        )
        tl.store(query, query_low, mask=is_query)
        tl.store(query + HALF, query_high, mask=is_query)
        key_low, key_high = _rotated(key_low, key_high, cos, sin)
    tl.store(keys + at + low, key_low, mask=is_kv)
    tl.store(keys + at + low + HALF, key_high, mask=is_kv)
    value = v + row * stride_v + low
    tl.store(values + at + low, tl.load(value, mask=is_kv, other=0.0), mask=is_kv)
    tl.store(values + at + low + HALF, tl.load(value + HALF, mask=is_kv, other=0.0), mask=is_kv)


def write_kv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Store k and v [rows, kv_heads, head_dim] at the rows' addresses in one layer of the pool.

    With `rotation`, cos and sin [positions, head_dim / 2], q and k are rotated first, halves
    against each other: q [rows, heads, head_dim] in place, k on its way into the pool. Rows of q,
    k and v may be strided. A position must be no larger than the tables.
    """
    heads, head_dim = q.shape[1], q.shape[2]
    block_size, kv_heads = keys.shape[1], keys.shape[2]
    cosines, sines = rotation if rotation is not None else (q, q)
    most = heads if rotation is not None else kv_heads
    _write[(k.shape[0], triton.cdiv(most, _HEADS_PER_PROGRAM))](
        q, k, v, keys, values, cosines, sines,
        rows.tables, rows.slots, rows.planes, rows.positions,
        q.stride(0), k.stride(0), v.stride(0), keys.stride(0), keys.stride(1),
        rows.tables.stride(0), rows.tables.stride(1),
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HALF_PAD=power_of_two(head_dim // 2),
        BLOCK_SIZE=block_size, ROTATE=rotation is not None,
        HEADS_PER_PROGRAM=_HEADS_PER_PROGRAM, num_warps=2,
    )  # fmt: skip
