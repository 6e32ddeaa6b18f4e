"""How events go into `event_log`: in the order of their keys, and few values bound for each.

Binding a value costs as much as storing it, and most of a batch's rows have the same step, ticket,
time, move and cause. So rows go in by statements of many, in which what all of them have in common
is bound once and what none of them has is left out; short runs go in row by row. Keys rise: SQLite
then fills page after page, which rows sorted by what they have would make it split.

The driver's own connection is used: a commit is many short statements, and each costs five times as
much through SQLAlchemy.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Final, NamedTuple

from .port import EventCells, EventRow
from .schema import RUN_SHIFT

# How many rows one statement carries, largest first; what is left goes in one by one.
_STATEMENT_ROWS: Final = (64, 32, 8)
_PREPARED: Final = 128  # statements that the driver keeps prepared

_ABSENT, _SHARED, _OWN = range(3)  # of a column in one statement: NULL, one value, one for each row
_COLUMNS: Final = ("key", *EventRow._fields[1:])
_D: Final = EventRow._fields.index("d")


class _Shape(NamedTuple):
    """What a run of similar rows binds where they go in one by one; the rest is NULL."""

    columns: tuple[str, ...]
    cells: Callable[[EventCells], EventCells]


_SHAPES: Final = (
    _Shape(_COLUMNS[:8], lambda row: row[:8]),  # seq … cause
    _Shape((*_COLUMNS[:8], *_COLUMNS[9:14]), lambda row: row[:8] + row[9:14]),  # and a … e
    _Shape(_COLUMNS, lambda row: row),
)


def insert_events(driver: sqlite3.Connection, run_id: int, rows: Sequence[EventCells]) -> None:
    """Insert a run's events, whose seqs rise."""
    for shape, run in groupby(rows, _shape_of):
        similar = list(run)
        start = 0
        for count in _STATEMENT_ROWS:
            while start + count <= len(similar):
                _insert_together(driver, run_id, similar[start : start + count])
                start += count
        if start < len(similar):
            cells = map(_SHAPES[shape].cells, similar[start:])
            driver.executemany(_statement_for_one(run_id, shape), cells)


def _shape_of(row: EventCells) -> int:
    """The number of the shortest shape that keeps everything of a row."""
    if row[14] is not None or row[8] is not None:  # extra, reason
        return 2
    return 0 if row[9] is None else 1  # a


def _insert_together(driver: sqlite3.Connection, run_id: int, rows: list[EventCells]) -> None:
    kinds: list[int] = []
    shared: list[object] = []
    own: list[tuple[object, ...]] = []
    for number, column in enumerate(zip(*rows, strict=True)):
        first = column[0]
        is_same = column.count(first) == len(rows)
        if is_same and first is None:
            kinds.append(_ABSENT)
        elif is_same and number != _D:  # it holds 0, 0.0 and -0.0, which are equal
            kinds.append(_SHARED)
            shared.append(first)
        else:
            kinds.append(_OWN)
            own.append(column)
    statement = _statement_for_many(run_id, len(rows), tuple(kinds))
    driver.execute(statement, (*shared, *chain.from_iterable(own)))


@lru_cache(maxsize=_PREPARED)
def _statement_for_many(run_id: int, rows: int, kinds: tuple[int, ...]) -> str:
    """Its parameters: the shared values in the order of columns, then own columns one by one."""
    columns = [name for name, kind in zip(_COLUMNS, kinds, strict=True) if kind != _ABSENT]
    values = (_row_of_many(run_id, rows, kinds, row) for row in range(rows))
    return f"INSERT INTO event_log ({', '.join(columns)}) VALUES {', '.join(values)}"  # noqa: S608  # numbers only


def _row_of_many(run_id: int, rows: int, kinds: tuple[int, ...], row: int) -> str:
    return f"({', '.join(_parameters(run_id, rows, kinds, row))})"


def _parameters(run_id: int, rows: int, kinds: tuple[int, ...], row: int) -> Iterator[str]:
    shared, own = 1, 1 + kinds.count(_SHARED) + row
    for name, kind in zip(_COLUMNS, kinds, strict=True):
        if kind == _SHARED:
            yield f"?{shared}"
            shared += 1
        elif kind == _OWN:
            yield f"?{own} + {run_id << RUN_SHIFT}" if name == "key" else f"?{own}"
            own += rows


@lru_cache(maxsize=_PREPARED)
def _statement_for_one(run_id: int, shape: int) -> str:
    columns = _SHAPES[shape].columns
    values = f"? + {run_id << RUN_SHIFT}{', ?' * (len(columns) - 1)}"
    return f"INSERT INTO event_log ({', '.join(columns)}) VALUES ({values})"  # noqa: S608  # numbers only
