"""The exit gate after a loop: logit, survival, who may leave; states go to their slots."""

import triton
import triton.language as tl
from torch import Tensor

from .paging import power_of_two


@triton.jit
def _route(
    y, weight, bias, slots, thresholds, states, survival, logits, exits,
    SIZE: tl.constexpr, SIZE_PAD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        tl.store(logits + row, 0.0)
        tl.store(exits + row, 0)
        return
    at = tl.arange(0, SIZE_PAD)
    mask = at < SIZE
    state = tl.load(y + row * SIZE + at, mask=mask, other=0.0)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    logit = tl.sum(state.to(tl.float32) * w, axis=0) + tl.load(bias).to(tl.float32)
    tl.store(states + slot * SIZE + at, state, mask=mask)
    after = tl.load(survival + slot) * (1.0 - 1.0 / (1.0 + tl.exp(-logit)))
    tl.store(survival + slot, after)
    tl.store(logits + row, logit)
    threshold = tl.load(thresholds + row)
    leaves = (1.0 - after >= threshold) & (threshold < 1.0)
    tl.store(exits + row, leaves.to(tl.int8))


def route_exits(
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    slots: Tensor,
    thresholds: Tensor,
    states: Tensor,
    survival: Tensor,
    logits: Tensor,
    exits: Tensor,
) -> None:
    """Fold one loop's gate into `survival`, say who may leave, and keep y as the slots' states.

    lambda = sigmoid(w y + b); S *= 1 - lambda; leave iff threshold < 1 and 1 - S >= threshold.
    y [rows, size]; slots int32 [rows], -1: padding (logit and exit 0); thresholds fp32 [rows];
    states [slots, size]; survival fp32 [slots]; out: logits fp32 [rows], exits int8 [rows].
    """
    size = y.shape[1]
    _route[(y.shape[0],)](
        y, weight, bias, slots, thresholds, states, survival, logits, exits,
        SIZE=size, SIZE_PAD=power_of_two(size),
        num_warps=max(1, min(8, power_of_two(size) // 256)),
    )  # fmt: skip
