"""RMSNorm, alone, after a gather, and around a residual; and SiLU times up.

Rounding follows the model's: scaled in fp32, cast, then multiplied by the weight.
"""

import triton
import triton.language as tl
from torch import Tensor

from .paging import power_of_two


@triton.jit
def _scaled(x, weight, eps, SIZE: tl.constexpr, dtype: tl.constexpr):
    """The norm of a row in fp32, cast to `dtype`, times the weight, rounded to `dtype` again."""
    mean = tl.sum(x * x, axis=0) / SIZE
    unit = (x * tl.rsqrt(mean + eps)).to(dtype).to(tl.float32)
    return (unit * weight).to(dtype).to(tl.float32)


@triton.jit
def _gather_norm(
    states, slots, x, y, weight, eps,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    at = tl.arange(0, SIZE_PAD)
    mask = at < SIZE
    present = at < tl.where(slot < 0, 0, SIZE)
    state = tl.load(states + slot * SIZE + at, mask=present, other=0.0)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(x + row * SIZE + at, state, mask=mask)
    normed = _scaled(state.to(tl.float32), w, eps, SIZE, y.dtype.element_ty)
    tl.store(y + row * SIZE + at, normed, mask=mask)


@triton.jit
def _add_norms(
    x, delta, y, weight_delta, weight_next, eps, stride_part,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE_PAD)
    mask = at < SIZE
    here = row * SIZE + at
    residual = tl.load(x + here, mask=mask, other=0.0).to(tl.float32)
    added = tl.load(delta + here, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        added += tl.load(delta + part * stride_part + here, mask=mask, other=0.0)
    added = added.to(x.dtype.element_ty).to(tl.float32)
    w_delta = tl.load(weight_delta + at, mask=mask, other=0.0).to(tl.float32)
    w_next = tl.load(weight_next + at, mask=mask, other=0.0).to(tl.float32)
    added = _scaled(added, w_delta, eps, SIZE, x.dtype.element_ty)
    state = (residual + added).to(x.dtype.element_ty)
    tl.store(x + here, state, mask=mask)
    normed = _scaled(state.to(tl.float32), w_next, eps, SIZE, x.dtype.element_ty)
    tl.store(y + here, normed, mask=mask)


@triton.jit
def _silu_mul(both, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < SIZE
    gate = tl.load(both + row * (2 * SIZE) + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(both + row * (2 * SIZE) + SIZE + at, mask=mask, other=0.0).to(tl.float32)
    activated = (gate / (1.0 + tl.exp(-gate))).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * SIZE + at, activated * up, mask=mask)


def gather_norm(
    states: Tensor, slots: Tensor, x: Tensor, y: Tensor, weight: Tensor, eps: float
) -> None:
    """Set x[i] = states[slots[i]] (zeros for slot -1) and y = RMSNorm(x).

    states [slots, size]; slots int32 [rows]; x and y [rows, size].
    """
    size = x.shape[1]
    _gather_norm[(x.shape[0],)](
        states, slots, x, y, weight, eps,
        SIZE=size, SIZE_PAD=power_of_two(size), num_warps=_warps(size),
    )  # fmt: skip


def add_norms(
    x: Tensor, delta: Tensor, y: Tensor, weight_delta: Tensor, weight_next: Tensor, eps: float
) -> None:
    """Do x += RMSNorm(delta), then y = RMSNorm(x). All [rows, size], contiguous.

    Or delta is fp32 [parts, rows, size], its parts yet to be added and rounded.
    """
    size = x.shape[1]
    parts = delta.shape[0] if delta.dim() == 3 else 1
    _add_norms[(x.shape[0],)](
        x, delta, y, weight_delta, weight_next, eps, delta.stride(0),
        SIZE=size, SIZE_PAD=power_of_two(size), PARTS=parts, num_warps=_warps(size),
    )  # fmt: skip


def silu_mul(both: Tensor, out: Tensor) -> None:
    """Do out = silu(gate) * up: `both` [rows, 2 * size] holds gate, then up; out [rows, size]."""
    rows, size = out.shape
    block = min(1024, power_of_two(size))
    _silu_mul[(rows, triton.cdiv(size, block))](both, out, SIZE=size, BLOCK=block, num_warps=4)


def _warps(size: int) -> int:
    return max(1, min(8, power_of_two(size) // 256))
