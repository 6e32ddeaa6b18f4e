"""Whose work is ready, by work key in the order it became so, and what batches of each key gave.

Everything is a counter or an ordered dict, so that each event costs the same however long a run is.
Written by F4, read by F2 and L2. No rules live here.
"""

from rlt_fsm.states import WorkKey


class KeyTally:
    """One work key. A *batch of the key* is one with at least one row of it."""

    __slots__ = (
        "batches", "building", "key", "last_batch", "ready", "ready_at", "rows_at", "scarce",
    )  # fmt: skip

    def __init__(self, key: WorkKey) -> None:
        self.key = key
        self.ready: dict[int, int] = {}  # ref, oldest first → batches of the key before it was
        self.building = 0  # rows of the key in the batch being built
        self.batches = 0
        self.last_batch = 0  # the number, among all batches, of the last one
        self.rows_at = [0]  # [b]: rows of the first b batches
        self.ready_at: list[int] = []  # [b]: requests with the key when batch b was chosen
        self.scarce = 0  # the batches up to this one do not count: blocks were short

    def close_batch(self, number: int) -> None:
        """The batch being built, the run's `number`-th, is submitted."""
        self.ready_at.append(len(self.ready) + self.building)
        self.rows_at.append(self.rows_at[-1] + self.building)
        self.batches += 1
        self.building = 0
        self.last_batch = number


class ReadyWork:
    """A tally for each work key."""

    def __init__(self) -> None:
        self.by_key = {key: KeyTally(key) for key in WorkKey}
        self.batches = 0  # of any key

    def being_built(self) -> list[WorkKey]:
        """The keys with rows in the batch being built."""
        return [tally.key for tally in self.by_key.values() if tally.building]
