"""Numbers from (key, counter): the same pair gives the same number on every machine, for ever.

A key is 64 bits of BLAKE2b over what should decide the draws; a draw is SplitMix64 of the key and a
counter (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). No hidden state:
nothing that runs beside a request can disturb what it draws. Tests pin golden values.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def key_of(*parts: str | int | Sequence[int]) -> int:
    """A 64-bit key from texts, integers and token lists; each part is framed by its length.

    Integers are little-endian signed 64-bit, texts UTF-8.
    """
    digest = blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            data = part.encode()
        elif isinstance(part, int):
            data = struct.pack("<q", part)
        else:
            data = struct.pack(f"<{len(part)}q", *part)
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def draw(key: int, counter: int) -> int:
    """The `counter`-th (0, 1, 2 …) 64-bit number of `key`."""
    z = (key + (counter + 1) * _GAMMA) & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31
