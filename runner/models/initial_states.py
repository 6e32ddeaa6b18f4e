"""Where a token's loops start in a model that draws it: noise that a seed and a position decide.

No generator and no hidden state: the draw of (seed, position) is the same in any batch or chunk,
after a preemption or a replay, and on every device. Counting and arithmetic only; no model here.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..draws import MULTIPLIER_0, MULTIPLIER_1, ROUNDS, WEYL_0, WEYL_1

CUT: Final = 3.0  # standard deviations on both sides
STATES: Final = 1  # the third word of the counter: draws of output tokens have 0 there

Words = NDArray[np.uint64]
_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def initial_states(seeds: Sequence[int], positions: Sequence[int], size: int) -> Tensor:
    """Standard normal numbers cut at ±3, fp32 [N, size] on the host, one row per token.

    Number j of a token at `position` comes from word j mod 4 of Philox4x32-10 at the counter
    (j div 4, position, 1, 0) under the seed's low 64 bits.
    """
    blocks = -(-size // 4)
    key = np.array(seeds, dtype=object) & 0xFFFFFFFFFFFFFFFF
    key_0 = (key & 0xFFFFFFFF).astype(np.uint64)[:, None]
    key_1 = (key >> 32).astype(np.uint64)[:, None]
    shape = (len(positions), blocks)
    counter = (
        np.broadcast_to(np.arange(blocks, dtype=np.uint64), shape),
        np.broadcast_to(np.array(positions, dtype=np.uint64)[:, None], shape),
        np.full(shape, STATES, dtype=np.uint64),
        np.zeros(shape, dtype=np.uint64),
    )
    words = np.stack(_philox(counter, key_0, key_1), axis=-1).reshape(len(positions), -1)
    uniform = torch.from_numpy((words[:, :size].astype(np.float64) + 0.5) / 2**32)
    inside = math.erf(CUT / math.sqrt(2))  # the mass between the cuts
    return (math.sqrt(2) * torch.erfinv((2 * uniform - 1) * inside)).float()


def _philox(counter: tuple[Words, ...], key_0: Words, key_1: Words) -> tuple[Words, ...]:
    """`draws.philox4x32` on arrays; products of 32-bit words fit 64 bits."""
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        product_0, product_1 = c0 * np.uint64(MULTIPLIER_0), c2 * np.uint64(MULTIPLIER_1)
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ key_0,
            product_1 & _MASK,
            (product_0 >> _HALF) ^ c3 ^ key_1,
            product_0 & _MASK,
        )
        key_0 = (key_0 + np.uint64(WEYL_0)) & _MASK
        key_1 = (key_1 + np.uint64(WEYL_1)) & _MASK
    return c0, c1, c2, c3
