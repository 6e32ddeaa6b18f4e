"""How often each request id was used in a run: which generation its next use is.

A run may see millions of ids, and keeps them all in its log; where the log finds them again, none
is kept here.
"""

from collections.abc import Callable

Lookup = Callable[[str], int]  # an id's newest generation that is committed; 0: never used


class Generations:
    """An id's newest generation. Written by the fold alone."""

    __slots__ = ("_by_id", "_lookup")

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._lookup: Lookup | None = None

    def leave_to(self, lookup: Lookup | None) -> None:
        """From now on ask the log, if it can tell. Whoever adds a request commits it before adding
        another.
        """
        if lookup is not None:
            self._lookup = lookup
            self._by_id.clear()

    def note(self, request_id: str, generation: int) -> None:
        """An id was used."""
        if self._lookup is None:
            self._by_id[request_id] = generation

    def newest(self, request_id: str) -> int:
        """Its newest generation; 0 where it was never used."""
        if self._lookup is not None:
            return self._lookup(request_id)
        return self._by_id.get(request_id, 0)

    def __contains__(self, request_id: str) -> bool:
        return self.newest(request_id) > 0

    def kept(self) -> dict[str, int]:
        """Those kept here: every id of the run, or none."""
        return dict(self._by_id)
