"""Columns of text, for the commands that print some."""

import textwrap
from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Rows as lines of columns as wide as their widest cell; `right` columns end, others begin,
    where the column does. The last column is not padded.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def wrapped(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows as lines of columns; a cell that is wider than `width` goes on in the next line."""
    broken: list[list[str]] = []
    for row in rows:
        cells = [textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell in row]
        height = max(map(len, cells))
        broken += [
            [cell[line] if line < len(cell) else "" for cell in cells] for line in range(height)
        ]
    return aligned(broken)
