"""The prefix index: which full prompt pages the cache holds, by the chained hash of their tokens.

Key of page j = SHA-256(key of page j-1 ‖ the page's token ids as little-endian int64). One entry is
one block per plane. Oldest first is the order of eviction; a parent is never older than its child,
so leaves go first. Changed by the fold alone.
"""

import hashlib
import struct
from collections.abc import Iterator

Key = bytes
Page = tuple[int, ...]  # one block per plane


def page_keys(tokens: tuple[int, ...], block_size: int) -> tuple[Key, ...]:
    """The chained keys of the full pages of `tokens`."""
    keys: list[Key] = []
    key = b""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        page = tokens[start : start + block_size]
        key = hashlib.sha256(key + struct.pack(f"<{block_size}q", *page)).digest()
        keys.append(key)
    return tuple(keys)


class PrefixIndex:
    """Page key → blocks, least recently used first."""

    __slots__ = ("_key_of", "_pages")

    def __init__(self) -> None:
        self._pages: dict[Key, Page] = {}
        self._key_of: dict[int, Key] = {}  # a page's first block → its key

    def __contains__(self, key: Key) -> bool:
        return key in self._pages

    def run(self, keys: tuple[Key, ...]) -> list[Page]:
        """The pages of the longest leading run of `keys` that the index holds."""
        pages: list[Page] = []
        for key in keys:
            page = self._pages.get(key)
            if page is None:
                break
            pages.append(page)
        return pages

    def add(self, keys: tuple[Key, ...], pages: list[Page]) -> None:
        """Enter consecutive pages, parents newer than children."""
        for key, page in reversed(list(zip(keys, pages, strict=True))):
            assert key not in self._pages, "a page is published once"
            self._pages[key] = page
            self._key_of[page[0]] = key

    def touch(self, keys: tuple[Key, ...]) -> None:
        """Make entries the newest, parents newer than children."""
        for key in reversed(keys):
            self._pages[key] = self._pages.pop(key)

    def remove(self, first_block: int) -> None:
        """Forget the page that starts with this block."""
        del self._pages[self._key_of.pop(first_block)]

    def oldest_first(self) -> Iterator[Page]:
        """The pages in the order of eviction."""
        return iter(self._pages.values())

    def entries(self) -> list[tuple[Key, Page]]:
        """Everything, oldest first (for comparing a replay with the live index)."""
        return list(self._pages.items())
