"""Parts of the attention kernels: pages, tiles, and the softmax over them. No launcher is here."""

import triton
import triton.language as tl


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
def rotated_head(
    x, cosines, sines, position, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    ROTATE: tl.constexpr,
):  # fmt: skip
    """A head at `x`, rotated and rounded as it would be stored, in fp32."""
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    own = tl.load(x + dims, mask=in_head, other=0.0).to(tl.float32)
    if ROTATE:
        HALF: tl.constexpr = HEAD_DIM // 2
        is_low = dims < HALF
        other = tl.load(x + tl.where(is_low, dims + HALF, dims - HALF), mask=in_head, other=0.0)
        at = position * HALF + tl.where(is_low, dims, dims - HALF)
        cos = tl.load(cosines + at, mask=in_head, other=0.0).to(tl.float32)
        sin = tl.load(sines + at, mask=in_head, other=0.0).to(tl.float32)
        turned = tl.where(is_low, -other.to(tl.float32), other.to(tl.float32))
        own = (own * cos + turned * sin).to(x.dtype.element_ty).to(tl.float32)
    return own


@triton.jit
def attend_one_head(
    query, keys, values, table, start, end, head, stride_block, stride_position,
    HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One query head, scaled. Each of TILE lanes keeps a softmax of its own; they meet at the end.

    Three tiles are on their way at a time: small ones, so that many programs fit.
    """
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    peak = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    summed = tl.zeros([TILE, HEAD_PAD], tl.float32)
    for first in tl.range(start, end, TILE, num_stages=3):
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
def attend_head_group(
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
def join_own_position(
    summed, peak, total, turned, k, v, keys, values, cosines, sines, table, position, head,
    stride_block, stride_position,
    HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Store a row's own K and V, and attend to them as well: they come from `k` and `v`."""
    dims = tl.arange(0, HEAD_PAD)
    in_head = dims < HEAD_DIM
    key = rotated_head(k, cosines, sines, position, HEAD_DIM, HEAD_PAD, True)
    value = tl.load(v + dims, mask=in_head, other=0.0)
    block = tl.load(table + position // BLOCK_SIZE).to(tl.int64)
    at = block * stride_block + (position % BLOCK_SIZE) * stride_position + head * HEAD_DIM
    tl.store(keys + at + dims, key, mask=in_head)
    tl.store(values + at + dims, value, mask=in_head)
    score = tl.sum(key * turned, axis=0)
    new_peak = tl.maximum(peak, score)
    decay, weight = tl.exp2(peak - new_peak), tl.exp2(score - new_peak)
    return summed * decay + weight * value.to(tl.float32), new_peak, total * decay + weight
