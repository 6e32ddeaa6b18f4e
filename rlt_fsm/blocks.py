"""Who owns which KV block: counting only, no tensors.

The pool is one range of physical blocks [0, num_blocks) over all planes. A block is free,
referenced by one or more requests, or held by the prefix cache alone (`prefix_only`). `peek`
decides which ids a fact will name; everything that changes the pool is called by the fold.
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


def plane_major(pages: list[tuple[int, ...]], planes: int) -> tuple[int, ...]:
    """Pages (one block per plane each) as a flat list, plane by plane."""
    return tuple(page[p] for p in range(planes) for page in pages)


class BlockPool:
    """The free blocks, as a stack: what was given back last is taken first."""

    __slots__ = ("_cached", "_free", "_references", "num_blocks", "prefix_only")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.prefix_only = 0
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks  # by requests
        self._cached: set[int] = set()  # membership only, never iterated

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def obtainable(self) -> int:
        """Blocks that can be taken without preempting anybody: free, or held by the cache alone."""
        return len(self._free) + self.prefix_only

    def references(self, block: int) -> int:
        """How many requests reference a block."""
        return self._references[block]

    def peek(self, count: int) -> tuple[int, ...]:
        """The next `count` ids that `take` would accept; `count` must not exceed `free`."""
        assert count <= len(self._free), f"{count} blocks asked of {len(self._free)} free"
        return tuple(self._free[: -count - 1 : -1]) if count else ()

    def take(self, blocks: tuple[int, ...]) -> None:
        """Give a request exactly the ids that `peek` gave."""
        assert blocks == self.peek(len(blocks)), "blocks are taken in the order that peek gives"
        if blocks:
            del self._free[-len(blocks) :]
            for block in blocks:
                self._references[block] = 1

    def share(self, blocks: tuple[int, ...]) -> None:
        """A request references blocks of the prefix cache."""
        for block in blocks:
            assert block in self._cached, f"block {block} is not in the prefix cache"
            if not self._references[block]:
                self.prefix_only -= 1
            self._references[block] += 1

    def drop(self, blocks: tuple[int, ...]) -> None:
        """A request gives up its references."""
        freed: list[int] = []
        for block in blocks:
            assert self._references[block] > 0, f"block {block} has no owner"
            self._references[block] -= 1
            if self._references[block]:
                continue
            if block in self._cached:
                self.prefix_only += 1
            else:
                freed.append(block)
        self._free.extend(reversed(freed))

    def publish(self, blocks: tuple[int, ...]) -> None:
        """The prefix cache holds blocks that a request references."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is published by its owner"
            assert block not in self._cached, f"block {block} is published once"
            self._cached.add(block)

    def evict(self, blocks: tuple[int, ...]) -> None:
        """The prefix cache gives up blocks that no request references."""
        for block in blocks:
            assert not self._references[block], f"block {block} is still referenced"
            self._cached.remove(block)
            self.prefix_only -= 1
        self._free.extend(reversed(blocks))

    def forget(self, blocks: tuple[int, ...]) -> None:
        """The prefix cache gives up all that it holds; what requests reference stays theirs."""
        assert self._cached == set(blocks), "the prefix cache gives up exactly what it holds"
        self._cached.clear()
        self._free.extend(block for block in reversed(blocks) if not self._references[block])
        self.prefix_only = 0

    def restore(
        self, free: tuple[int, ...], tables: list[tuple[int, ...]], cached: list[int]
    ) -> None:
        """Become the pool with these free ids (next one first), references and cached blocks."""
        assert not self._cached, "a pool is restored before it is used"
        self._free = list(reversed(free))
        for table in tables:
            for block in table:
                self._references[block] += 1
        self._cached.update(cached)
        self.prefix_only = sum(not self._references[block] for block in cached)

    def free_ids(self) -> tuple[int, ...]:
        """The free ids, next one first (for comparing a replay with the live pool)."""
        return tuple(reversed(self._free))
