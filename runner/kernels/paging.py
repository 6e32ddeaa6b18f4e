"""Where the rows of a launch lie in the pool, as small int32 tensors. No kernel lives here."""

from typing import NamedTuple

from torch import Tensor


class PagedRows(NamedTuple):
    """Rows of one launch: row i is `positions[i]` of the request in slot `slots[i]`, at one plane.

    A row with slot -1 is padding: it reads and writes nothing, and its outputs are zero.
    """

    tables: Tensor  # int32 [slots, planes, pages], block ids
    slots: Tensor  # int32 [rows]
    planes: Tensor  # int32 [rows]
    positions: Tensor  # int32 [rows]

    def part(self, start: int, end: int) -> "PagedRows":
        """Rows [start, end), over the same tables."""
        return PagedRows(
            self.tables, self.slots[start:end], self.planes[start:end], self.positions[start:end]
        )


class Tiles(NamedTuple):
    """Runs of consecutive rows that are consecutive positions of one request at one plane."""

    firsts: Tensor  # int32 [tiles], row numbers
    counts: Tensor  # int32 [tiles], at most `TILE_ROWS`; 0: padding


TILE_ROWS = 64


def power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
