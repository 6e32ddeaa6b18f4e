"""Who owns which KV block: counting only, no tensors.

The pool is one range of physical blocks [0, num_blocks) over all planes. `peek` decides which ids a
fact will name; `take` and `drop` are called by the fold alone.
"""

from .batch import BlockTable


def blocks_needed(tokens: int, block_size: int, planes: int) -> int:
    """Physical blocks for `tokens` positions: whole pages, in every plane."""
    return -(-tokens // block_size) * planes


def extend_table(table: BlockTable, taken: tuple[int, ...], planes: int) -> BlockTable:
    """A block table with new blocks appended; `taken` is plane-major, equal shares per plane."""
    share, rest = divmod(len(taken), planes)
    assert rest == 0, f"{len(taken)} blocks do not divide over {planes} planes"
    fresh = tuple(taken[p * share : (p + 1) * share] for p in range(planes))
    if not table:
        return fresh
    return tuple(old + new for old, new in zip(table, fresh, strict=True))


class BlockPool:
    """The free blocks, as a stack: what was given back last is taken first."""

    __slots__ = ("_free", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        """Blocks that nobody references."""
        return len(self._free)

    def peek(self, count: int) -> tuple[int, ...]:
        """The next `count` ids that `take` would accept; `count` must not exceed `free`."""
        assert count <= len(self._free), f"{count} blocks asked of {len(self._free)} free"
        return tuple(self._free[: -count - 1 : -1]) if count else ()

    def take(self, blocks: tuple[int, ...]) -> None:
        """Remove exactly the ids that `peek` gave."""
        assert blocks == self.peek(len(blocks)), "blocks are taken in the order that peek gives"
        if blocks:
            del self._free[-len(blocks) :]

    def drop(self, blocks: tuple[int, ...]) -> None:
        """Give blocks back."""
        self._free.extend(reversed(blocks))
        assert len(self._free) <= self.num_blocks, "more blocks given back than exist"

    def free_ids(self) -> tuple[int, ...]:
        """The free ids, next one first (for comparing a replay with the live pool)."""
        return tuple(reversed(self._free))
