"""Uniform numbers that depend on a key and a counter alone. Plain integers: no torch, no state.

A generator with hidden state would tie a request's tokens to how often it was asked before;
here draw (seed, output index) is the same after a preemption, a replay or a restart.
"""

from typing import Final

# Philox4x32-10: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
ROUNDS: Final = 10
MULTIPLIER_0: Final = 0xD2511F53
MULTIPLIER_1: Final = 0xCD9E8D57
WEYL_0: Final = 0x9E3779B9  # golden ratio
WEYL_1: Final = 0xBB67AE85  # sqrt(3) - 1
_MASK: Final = 0xFFFFFFFF

Words4 = tuple[int, int, int, int]


def philox4x32(counter: Words4, key: tuple[int, int]) -> Words4:
    """Philox4x32-10: four 32-bit words of a 128-bit counter under a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * c0
        product_1 = MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> 32) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> 32) ^ c3 ^ k1,
            product_0 & _MASK,
        )
        k0 = (k0 + WEYL_0) & _MASK
        k1 = (k1 + WEYL_1) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, output_idx: int) -> float:
    """A float64 in [0, 1) from 53 bits of (seed, output index).

    The seed's low 64 bits are the key; the index is the counter's low half. The high half is 0 and
    is free for draws of other kinds.
    """
    assert output_idx >= 0, output_idx
    key = (seed & _MASK, (seed >> 32) & _MASK)
    word_0, word_1, _, _ = philox4x32((output_idx & _MASK, output_idx >> 32, 0, 0), key)
    return ((word_0 << 21) | (word_1 >> 11)) / (1 << 53)
