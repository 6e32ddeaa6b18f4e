"""The WAITING requests in the order key. Written by F1, read by F3; no rules live here."""

from bisect import bisect_left, insort

OrderKey = tuple[int, int]  # (priority or 0, submitted seq); smaller is better


class WaitingLine:
    """Who waits, the best first. Keys are unique: a submitted seq breaks ties."""

    def __init__(self) -> None:
        self._line: list[tuple[OrderKey, int]] = []
        self._key_of: dict[int, OrderKey] = {}

    def join(self, ref: int, key: OrderKey) -> None:
        """A request waits, at its place."""
        if ref not in self._key_of:
            self._key_of[ref] = key
            insort(self._line, (key, ref))

    def leave(self, ref: int) -> None:
        """A request waits no more."""
        key = self._key_of.pop(ref, None)
        if key is not None:
            del self._line[bisect_left(self._line, (key, ref))]

    @property
    def refs(self) -> list[int]:
        """Who waits, the best first."""
        return [ref for _, ref in self._line]

    def ahead_of(self, key: OrderKey) -> list[int]:
        """The refs of those that wait with a better key, the best first."""
        return [ref for _, ref in self._line[: bisect_left(self._line, (key, -1))]]
