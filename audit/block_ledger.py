"""Who references which KV block, and who sits in which state row, recounted from block lists.

Counting only: every method returns what is wrong with the change as a phrase, or None, and applies
what can be applied, so that one bad list does not make every later one look bad. S9 reports.
"""

from collections.abc import Iterable

from .facts import CacheFacts


class BlockLedger:
    """The pool of one run. A block is free when no request references it and no prefix keeps it."""

    def __init__(self, requests: int, planes: int, cache: CacheFacts) -> None:
        self.num_blocks = cache.num_blocks
        self.planes = planes
        self.block_size = cache.block_size
        self.owned: list[set[int]] = [set() for _ in range(requests)]  # by ref
        self.tokens: list[int] = [0] * requests  # by ref: positions its blocks can hold
        self._references: dict[int, int] = {}  # block → requests that reference it, if any
        self._prefix: set[int] = set()  # blocks that the prefix cache keeps
        self.prefix_only = 0  # those of them that no request references
        self.host: dict[int, int] = {}  # ref → host blocks of its snapshot
        self.state_rows: dict[int, int] = {}  # state row → ref
        self._row_of: dict[int, int] = {}  # ref → state row

    def grow(self, requests: int) -> None:
        """Make room for more requests."""
        self.owned += [set() for _ in range(requests)]
        self.tokens += [0] * requests

    @property
    def referenced(self) -> int:
        """Distinct blocks that requests reference."""
        return len(self._references)

    @property
    def prefix_blocks(self) -> list[int]:
        """Blocks that the prefix cache keeps, by id."""
        return sorted(self._prefix)

    def keep_prefixes(self, blocks: Iterable[int]) -> None:
        """Go on with a prefix cache that keeps these."""
        for block in blocks:
            self._keep(block)

    def hold(self, ref: int, blocks: Iterable[int]) -> None:
        """Go on with a request that references these."""
        for block in blocks:
            self._refer(self.owned[ref], block)
        self._set_tokens(ref)

    @property
    def free(self) -> int:
        """Blocks that anyone may take; 0 where the pool's size is unknown."""
        return (self.num_blocks or 0) - self.referenced - self.prefix_only

    @property
    def host_blocks(self) -> int:
        """Blocks' worth of snapshots on the host."""
        return sum(self.host.values())

    def in_use(self, blocks: Iterable[int]) -> int:
        """How many of the blocks some request references."""
        return sum(1 for block in blocks if block in self._references)

    def owner(self, block: int) -> int | None:
        """Some request that references the block (the one owner where nothing is shared)."""
        return next((ref for ref, owned in enumerate(self.owned) if block in owned), None)

    def take(self, ref: int, blocks: Iterable[int]) -> str | None:
        """Free blocks become the request's own."""
        wrong = None
        owned = self.owned[ref]
        for block in blocks:
            if self.num_blocks is not None and not 0 <= block < self.num_blocks:
                wrong = wrong or f"block {block}, outside a pool of {self.num_blocks}"
            elif block in self._references:
                wrong = wrong or f"block {block}, which ref {self.owner(block)} references"
            elif block in self._prefix:
                wrong = wrong or f"block {block}, which the prefix cache keeps"
            if block not in owned:
                self._refer(owned, block)
        self._set_tokens(ref)
        return wrong

    def share(self, ref: int, blocks: Iterable[int]) -> str | None:
        """Blocks that the prefix cache keeps get one more reference."""
        wrong = None
        owned = self.owned[ref]
        for block in blocks:
            if block not in self._prefix:
                wrong = wrong or f"block {block}, which the prefix cache does not keep"
            if block not in owned:
                self._refer(owned, block)
        self._set_tokens(ref)
        return wrong

    def drop(self, ref: int, blocks: Iterable[int]) -> str | None:
        """The request no longer references the blocks."""
        wrong = None
        owned = self.owned[ref]
        for block in blocks:
            if block not in owned:
                wrong = wrong or f"block {block}, which it does not reference"
                continue
            owned.discard(block)
            left = self._references[block] - 1
            if left:
                self._references[block] = left
            else:
                del self._references[block]
                self.prefix_only += block in self._prefix
        self._set_tokens(ref)
        return wrong

    def publish(self, ref: int, blocks: Iterable[int]) -> str | None:
        """The prefix cache keeps blocks that the request references."""
        wrong = None
        for block in blocks:
            if block not in self.owned[ref]:
                wrong = wrong or f"block {block}, which it does not reference"
            elif block in self._prefix:
                wrong = wrong or f"block {block}, which the prefix cache keeps already"
            self._keep(block)
        return wrong

    def evict(self, blocks: Iterable[int]) -> str | None:
        """The prefix cache lets the blocks go."""
        wrong = None
        for block in blocks:
            if block not in self._prefix:
                wrong = wrong or f"block {block}, which the prefix cache does not keep"
                continue
            self._prefix.remove(block)
            self.prefix_only -= block not in self._references
        return wrong

    def lose_prefixes(self) -> int:
        """The prefix cache keeps nothing any more; how many blocks it had kept."""
        kept = len(self._prefix)
        self._prefix.clear()
        self.prefix_only = 0
        return kept

    def seat(self, ref: int, row: int, rows: int | None) -> str | None:
        """The request takes a state row; `rows` is how many there are."""
        wrong = None
        if row < 0 or (rows is not None and row >= rows):
            wrong = f"state row {row} of {rows}"
        elif row in self.state_rows:
            wrong = f"state row {row}, which ref {self.state_rows[row]} owns"
        self.state_rows[row] = ref
        self._row_of[ref] = row
        return wrong

    def unseat(self, ref: int) -> None:
        """The request's state row is free again."""
        row = self._row_of.pop(ref, None)
        if row is not None and self.state_rows.get(row) == ref:
            del self.state_rows[row]

    def _refer(self, owned: set[int], block: int) -> None:
        owned.add(block)
        references = self._references.get(block, 0)
        self._references[block] = references + 1
        if not references:
            self.prefix_only -= block in self._prefix

    def _keep(self, block: int) -> None:
        if block not in self._prefix:
            self._prefix.add(block)
            self.prefix_only += block not in self._references

    def _set_tokens(self, ref: int) -> None:
        self.tokens[ref] = len(self.owned[ref]) // self.planes * self.block_size
