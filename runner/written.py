"""What was written of every request's KV, per plane: a contiguous prefix, and parts beyond a gap.

Counting on the host only. "Written" means enqueued: the device's own order supplies the rest.
"""

Owner = tuple[str, int]  # request id and generation


class WrittenRecords:
    """Which positions hold KV, by request and plane.

    Positions lie beyond a gap where a replayed token leaves the loop before its predecessors have
    come as deep: its exit copies are there first, and nothing may read across the gap.
    """

    def __init__(self, planes: int) -> None:
        self._planes = planes
        self._frontiers: dict[Owner, list[int]] = {}
        self._beyond: dict[tuple[Owner, int], set[int]] = {}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._frontiers

    def begin(self, owner: Owner, cached: int) -> None:
        """A request's first rows arrive; [0, cached) lie in pages that others wrote."""
        self._frontiers[owner] = [cached] * self._planes

    def frontier(self, owner: Owner, plane: int) -> int:
        """Positions [0, frontier) are all written."""
        frontiers = self._frontiers.get(owner)
        return 0 if frontiers is None else frontiers[plane]

    def has(self, owner: Owner, plane: int, position: int) -> bool:
        """Whether one position is written, before a gap or beyond it."""
        is_before = 0 <= position < self.frontier(owner, plane)
        return is_before or position in self._beyond.get((owner, plane), ())

    def frontier_after(self, owner: Owner, plane: int, frontier: int, end: int) -> int:
        """Where a frontier moves when positions from it to `end` are written as well.

        Example: with 3 and 4 beyond the gap, writing up to 3 moves the frontier to 5.
        """
        beyond = self._beyond.get((owner, plane), ())
        frontier = max(frontier, end)
        while frontier in beyond:
            frontier += 1
        return frontier

    def extend(self, owner: Owner, plane: int, start: int, end: int) -> None:
        """Positions [start, end) were written; beyond a gap they stay hidden until it closes."""
        if owner not in self._frontiers:
            self.begin(owner, 0)
        frontiers = self._frontiers[owner]
        if start > frontiers[plane]:
            self._beyond.setdefault((owner, plane), set()).update(range(start, end))
            return
        frontiers[plane] = self.frontier_after(owner, plane, frontiers[plane], end)
        if (beyond := self._beyond.pop((owner, plane), None)) is not None:
            beyond = {position for position in beyond if position >= frontiers[plane]}
            if beyond:
                self._beyond[owner, plane] = beyond

    def extend_by_one(self, owner: Owner, planes: range, position: int) -> None:
        """`extend` by one position at several planes: the short way where nothing has gaps."""
        frontiers = self._frontiers.get(owner)
        if frontiers is None or self._beyond:
            for plane in planes:
                self.extend(owner, plane, position, position + 1)
            return
        for plane in planes:
            if position == frontiers[plane]:
                frontiers[plane] = position + 1
            elif position > frontiers[plane]:
                self.extend(owner, plane, position, position + 1)

    def take(self, owner: Owner) -> "Written":
        """Remove and return everything about a request."""
        frontiers = tuple(self._frontiers.pop(owner, [0] * self._planes))
        beyond = (self._beyond.pop((owner, plane), set()) for plane in range(self._planes))
        return frontiers, tuple(frozenset(positions) for positions in beyond)

    def put(self, owner: Owner, written: "Written") -> None:
        """Bring back what `take` returned."""
        frontiers, beyond = written
        self._frontiers[owner] = list(frontiers)
        for plane, positions in enumerate(beyond):
            if positions:
                self._beyond[owner, plane] = set(positions)


Written = tuple[tuple[int, ...], tuple[frozenset[int], ...]]  # frontier and beyond, by plane
