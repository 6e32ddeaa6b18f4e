"""Begin a token in every row: its embedding becomes the slot's state, its gate starts afresh."""

import triton
import triton.language as tl
from torch import Tensor

from .paging import power_of_two


@triton.jit
def _embed(
    tokens, by_slot, slots, weight, states, survival, SIZE: tl.constexpr, SIZE_PAD: tl.constexpr
):
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    token = tl.load(tokens + row).to(tl.int64)
    if token < 0:
        token = tl.load(by_slot + slot)
    at = tl.arange(0, SIZE_PAD)
    mask = at < SIZE
    state = tl.load(weight + token * SIZE + at, mask=mask, other=0.0)
    tl.store(states + slot * SIZE + at, state, mask=mask)
    tl.store(survival + slot, 1.0)


def embed_tokens(
    tokens: Tensor, by_slot: Tensor, slots: Tensor, weight: Tensor, states: Tensor, survival: Tensor
) -> None:
    """Set states[slots[i]] = weight[tokens[i]] and survival[slots[i]] = 1; slot -1: nothing.

    A token of -1 is the one last sampled for the slot, `by_slot` int64 [slots]. tokens int32 and
    slots int32 [rows]; weight [vocabulary, size]; states [slots, size]; survival fp32 [slots].
    """
    size = weight.shape[1]
    _embed[(tokens.shape[0],)](
        tokens, by_slot, slots, weight, states, survival,
        SIZE=size, SIZE_PAD=power_of_two(size), num_warps=4,
    )  # fmt: skip
