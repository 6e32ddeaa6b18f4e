"""The one order of requests, and the lines of them that are kept in it. Changed by the fold alone.

The order key is fixed when a request is submitted. It orders admission and victims alike.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

OrderKey = tuple[int, int]  # (priority or 0, submitted seq); smaller is better, keys are unique


class Ordered(Protocol):
    """What a line is made of."""

    name: str
    order_key: OrderKey


R = TypeVar("R", bound=Ordered)


def _key(entry: tuple[OrderKey, object]) -> OrderKey:
    return entry[0]


class InOrder(Generic[R]):
    """Requests in order-key order, the best first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[OrderKey, R]] = []

    def add(self, request: R) -> None:
        """Put a request at its place."""
        insort(self._entries, (request.order_key, request), key=_key)

    def remove(self, request: R) -> None:
        """Take a request out; it must be there."""
        at = bisect_left(self._entries, request.order_key, key=_key)
        assert self._entries[at][1] is request, f"{request.name} is not in this line"
        del self._entries[at]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[R]:
        return (request for _, request in self._entries)


class Waiting(InOrder[R]):
    """The waiting requests, whatever happened to them before."""

    __slots__ = ()

    def first(self, count: int) -> list[R]:
        """The best `count` requests."""
        return [request for _, request in self._entries[:count]]

    def ahead_of(self, key: OrderKey) -> list[R]:
        """The waiting requests whose order key is better than `key`."""
        at = bisect_left(self._entries, key, key=_key)
        return [request for _, request in self._entries[:at]]


class Holders(InOrder[R]):
    """Who references blocks: active requests, waiting residents, those that are to retire."""

    __slots__ = ()

    def worse_than(self, key: OrderKey) -> Iterator[R]:
        """Those whose order key is worse than `key`, as they are now, the worst first."""
        at = bisect_right(self._entries, key, key=_key)
        return (request for _, request in reversed(self._entries[at:]))
