"""One token per row of logits: greedy, plain, or filtered by top-k and top-p. No sort.

The order of `runner.sampler`: temperature, top-k, top-p, softmax, one draw from (seed, output
index). A filter's boundary is found by bisection over the logits' bits: counts and masses above a
value are sums over a row, and sums need no order.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from .paging import power_of_two
from .sampling_rows import SamplingRows

# Low bits of an fp32 that holds a number of the dtype.
_UNUSED_BITS: Final = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}


@triton.jit
def uniform(seed, index):
    """The float64 in [0, 1) that `runner.draws.uniform` gives: 53 bits of Philox4x32-10."""
    zero = tl.zeros_like(index).to(tl.uint32)
    low = (index & 0xFFFFFFFF).to(tl.uint32)
    high = ((index >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word_0, word_1, _, _ = tl.philox(seed, low, high, zero, zero)
    bits = (word_0.to(tl.uint64) << 21) | (word_1.to(tl.uint64) >> 11)
    return bits.to(tl.int64).to(tl.float64) * (1.0 / 9007199254740992.0)


@triton.jit
def _order(x, SHIFT: tl.constexpr):
    """Integers in the order of the floats; both zeros are one. SHIFT: bits that their own dtype,
    narrower than fp32, never uses.
    """
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def _value(order, SHIFT: tl.constexpr):
    """The float of `_order`'s integer."""
    order = order.to(tl.int32)
    wide = (order << SHIFT) | tl.where(order < 0, (1 << SHIFT) - 1, 0)
    return (wide ^ ((wide >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _weigh(x, peak, temperature):
    return tl.exp((x.to(tl.float64) - peak) / temperature)


@triton.jit
def _weigh_in_fp32(x, peak, temperature):
    """For sums over what filters keep: many passes, which fp64 would make ten times as long."""
    return tl.exp((x - peak.to(tl.float32)) / temperature.to(tl.float32)).to(tl.float64)


@triton.jit
def _above(
    row, least, peak, temperature, SIZE: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr
):
    """How many logits have an order of at least `least`, and their mass."""
    count = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float64)
    for first in range(0, SIZE, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < SIZE, other=0.0).to(tl.float32)
        counts = (at < SIZE) & (_order(x, SHIFT).to(tl.int64) >= least)
        count += counts.to(tl.int32)
        mass += tl.where(counts, _weigh_in_fp32(x, peak, temperature), 0.0)
    return tl.sum(count, axis=0), tl.sum(mass, axis=0)


@triton.jit
def _pick_plain(row, peak, temperature, draw, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Inverse CDF in the order of the ids: the first whose cumulative mass exceeds u x total."""
    total = tl.zeros([BLOCK], tl.float64)
    last = tl.zeros([BLOCK], tl.int32)  # the last id with any mass at all
    for first in range(0, SIZE, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < SIZE, other=0.0).to(tl.float32)
        weight = tl.where(at < SIZE, _weigh(x, peak, temperature), 0.0)
        total += weight
        last = tl.where(weight > 0.0, at, last)
    target = draw * tl.sum(total, axis=0)
    mass = target * 0.0
    index = tl.zeros([BLOCK], tl.int32)
    for first in range(0, SIZE, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < SIZE, other=0.0).to(tl.float32)
        weight = tl.where(at < SIZE, _weigh(x, peak, temperature), 0.0)
        passed = (mass + tl.cumsum(weight, axis=0) <= target) & (at < SIZE)
        index += passed.to(tl.int32)
        mass += tl.sum(weight, axis=0)
    return tl.minimum(tl.sum(index, axis=0), tl.max(last, axis=0))


@triton.jit
def _least_kept(
    row, low, high, top_k, by_mass, allowed, peak, temperature,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The least order that stays. By count: that of the k-th largest. By mass: the least one that
    a mass of at most `allowed` precedes.
    """
    while low < high:
        middle = (low + high) >> 1
        count, mass = _above(row, middle + 1, peak, temperature, SIZE, BLOCK, SHIFT)
        # The k-th largest lies at `middle` or below iff fewer than k lie above it.
        stays = tl.where(by_mass, mass <= allowed, count < top_k)
        high = tl.where(stays, middle, high)
        low = tl.where(stays, low, middle + 1)
    return low


@triton.jit
def _nth_of(row, order, wanted, SIZE: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    """The id of the `wanted`-th (from 0) logit of this very order."""
    seen = wanted * 0
    found = tl.zeros([BLOCK], tl.int32)
    for first in range(0, SIZE, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < SIZE, other=0.0).to(tl.float32)
        equal = ((at < SIZE) & (_order(x, SHIFT).to(tl.int64) == order)).to(tl.int32)
        rank = seen + tl.cumsum(equal, axis=0) - 1
        found = tl.where((equal == 1) & (rank == wanted), at, found)
        seen += tl.sum(equal, axis=0)
    return tl.max(found, axis=0)


@triton.jit
def _pick_filtered(
    row, lowest, peak, temperature, top_k, top_p, draw, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """Inverse CDF over what the filters keep, likeliest first, equals in the order of their ids."""
    high = _order(peak.to(tl.float32), SHIFT).to(tl.int64)
    least = _order(lowest, SHIFT).to(tl.int64)
    if (top_k > 0) & (top_k < SIZE):
        least = _least_kept(
            row, least, high, top_k, False, 0.0, peak, temperature, SIZE, BLOCK, SHIFT
        )
    count, kept = _above(row, least, peak, temperature, SIZE, BLOCK, SHIFT)
    if top_p < 1.0:
        allowed = top_p * kept
        least = _least_kept(
            row, least, high, 0, True, allowed, peak, temperature, SIZE, BLOCK, SHIFT
        )
        count, mass = _above(row, least, peak, temperature, SIZE, BLOCK, SHIFT)
        count_above, mass_above = _above(row, least + 1, peak, temperature, SIZE, BLOCK, SHIFT)
        # Equals at the boundary stay as long as what precedes each is allowed.
        each = _weigh_in_fp32(_value(least, SHIFT), peak, temperature)
        fitting = ((allowed - mass_above) / tl.where(each > 0.0, each, 1.0)).to(tl.int64) + 1
        equals = tl.minimum(fitting, (count - count_above).to(tl.int64))
        kept = mass_above + equals.to(tl.float64) * each
        count = count_above + equals.to(tl.int32)
    target = draw * kept
    low = least  # the greatest order whose mass, with all above it, exceeds the target
    while low < high:
        middle = (low + high + 1) >> 1
        _, mass = _above(row, middle, peak, temperature, SIZE, BLOCK, SHIFT)
        low = tl.where(mass > target, middle, low)
        high = tl.where(mass > target, high, middle - 1)
    before, mass_before = _above(row, low + 1, peak, temperature, SIZE, BLOCK, SHIFT)
    until, _ = _above(row, low, peak, temperature, SIZE, BLOCK, SHIFT)
    each = _weigh_in_fp32(_value(low, SHIFT), peak, temperature)
    rank = ((target - mass_before) / tl.where(each > 0.0, each, 1.0)).to(tl.int64)
    last = tl.minimum(count, until) - before - 1
    rank = tl.minimum(tl.maximum(rank, 0), last.to(tl.int64)).to(tl.int32)
    return _nth_of(row, low, rank, SIZE, BLOCK, SHIFT)


@triton.jit
def _sample(
    logits, slots, temperatures, top_ps, top_ks, seeds, indices, tokens, logprobs, by_slot,
    stride, SIZE: tl.constexpr, BLOCK: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + which)
    if slot < 0:
        tl.store(tokens + which, 0)
        tl.store(logprobs + which, 0.0)
        return
    row = logits + which * stride
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    worst = tl.full([BLOCK], float("inf"), tl.float32)
    best_at = tl.zeros([BLOCK], tl.int32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, SIZE, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(row + at, mask=at < SIZE, other=float("-inf")).to(tl.float32)
        new = tl.maximum(best, x)
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(best - base) + tl.exp(x - base)
        best_at = tl.where(x > best, at, best_at)
        worst = tl.where(at < SIZE, tl.minimum(worst, x), worst)
        best = new
    top = tl.max(best, axis=0)
    token = tl.min(tl.where(best == top, best_at, SIZE), axis=0)
    total_mass = tl.sum(total * tl.exp(best - top), axis=0)
    temperature = tl.load(temperatures + which)
    if temperature > 0.0:
        top_p, top_k = tl.load(top_ps + which), tl.load(top_ks + which)
        draw = uniform(tl.load(seeds + which), tl.load(indices + which))
        peak = top.to(tl.float64)
        if (top_p < 1.0) | ((top_k > 0) & (top_k < SIZE)):
            lowest = tl.min(worst, axis=0)
            token = _pick_filtered(
                row, lowest, peak, temperature, top_k, top_p, draw, SIZE, BLOCK, SHIFT
            )
        else:
            token = _pick_plain(row, peak, temperature, draw, SIZE, BLOCK)
    chosen = tl.load(row + token).to(tl.float32)
    tl.store(tokens + which, token)
    tl.store(by_slot + slot, token)
    tl.store(logprobs + which, chosen - top - tl.log(total_mass))


def sample_tokens(
    logits: Tensor, rows: SamplingRows, tokens: Tensor, logprobs: Tensor, by_slot: Tensor
) -> None:
    """Sample each row of logits [rows, vocabulary] into tokens int64 [rows] and, by its slot, into
    `by_slot` int64 [slots]; padding: 0, and no slot.

    logprobs fp32 [rows]: of the raw logits in fp32, before temperature and filters.
    """
    size = logits.shape[1]
    _sample[(logits.shape[0],)](
        logits, rows.slots, rows.temperatures, rows.top_ps, rows.top_ks, rows.seeds, rows.indices,
        tokens, logprobs, by_slot, logits.stride(0),
        SIZE=size, BLOCK=min(4096, power_of_two(size)), SHIFT=_UNUSED_BITS[logits.dtype],
        num_warps=8,
    )  # fmt: skip
