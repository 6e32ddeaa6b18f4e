"""Appending one run to a log database: rows are kept until `commit` stores them at once.

Nobody holds the database's lock between two commits, several runs may be written at the same time,
and a commit that failed may be tried again: its rows are still here.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain, groupby
from typing import Final, NamedTuple

from sqlalchemy import Connection

from rlt_fsm.errors import LogUnavailable

from .port import EventCells, EventRow, LogWriter, RequestRow, StepRow
from .schema import RUN_SHIFT
from .sql_driver import driver_of

# How many rows one INSERT statement carries, largest first; what is left goes in one by one.
_STATEMENT_ROWS: Final = (64, 16)


class _Shape(NamedTuple):
    """Which columns of an event a statement binds; those left out are NULL in all of its rows.

    Binding NULLs costs as much as binding numbers: the two short shapes, which nearly every event
    of a decoding engine has, halve the time of an insert.
    """

    columns: tuple[str, ...]
    cells: Callable[[EventCells], EventCells]


_HEAD: Final = EventRow._fields[:8]  # seq … cause
_SHORT: Final = _Shape(_HEAD, lambda row: row[:8])
_NUMBERS: Final = _Shape((*_HEAD, *EventRow._fields[9:14]), lambda row: row[:8] + row[9:14])
_WHOLE: Final = _Shape(EventRow._fields, lambda row: row)
_SHAPES: Final = (_SHORT, _NUMBERS, _WHOLE)


def _shape_of(row: EventCells) -> int:
    """The number of the shortest shape that keeps everything of a row."""
    if row[14] is not None or row[8] is not None:  # extra, reason
        return 2
    return 0 if row[9] is None else 1  # a


class _Insert:
    """The statements of one shape: for one row, and for each number of `_STATEMENT_ROWS`."""

    def __init__(self, shape: _Shape, run_id: int) -> None:
        self.cells = shape.cells
        columns = ", ".join(("key", *shape.columns[1:]))
        # The run's number stands in the statement, so that rows go in as they are.
        row = f"(? + {run_id << RUN_SHIFT}{', ?' * (len(shape.columns) - 1)})"
        self.one = f"INSERT INTO event_log ({columns}) VALUES {row}"  # noqa: S608  # numbers only
        self.many = [(n, self.one + f", {row}" * (n - 1)) for n in _STATEMENT_ROWS]


class SqlWriter(LogWriter):
    """Writes one run through short transactions that `transaction` opens.

    `numbers` maps our moves onto those of the file; None where they are the same.
    """

    def __init__(
        self,
        run_id: int,
        numbers: list[int] | None,
        transaction: Callable[[], AbstractContextManager[Connection]],
        *,
        last_seq: int = 0,
    ) -> None:
        self._run_id = run_id
        self._numbers = numbers
        self._transaction = transaction
        self._last_seq = last_seq
        self._has_ended = False
        self._events: list[EventCells] = []
        self._requests: list[RequestRow] = []
        self._steps: list[StepRow] = []
        self._inserts = [_Insert(shape, run_id) for shape in _SHAPES]
        self._insert_request = f"INSERT INTO request_ref VALUES ({run_id}, ?, ?, ?)"  # noqa: S608  # numbers only
        self._insert_step = f"INSERT INTO step_log VALUES ({run_id}{', ?' * 10})"  # noqa: S608  # numbers only

    @property
    def run_id(self) -> int:
        """The run's number in its log."""
        return self._run_id

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        """Keep rows for the next `commit`; costs no more than a list's `extend`."""
        assert not self._has_ended, "the run has ended"
        if events:
            assert events[0][0] > self._last_seq, f"seq {events[0][0]} was written before"
            self._last_seq = events[-1][0]
            self._events += events if self._numbers is None else _renumbered(events, self._numbers)
        self._requests += requests
        self._steps += steps

    def commit(self) -> None:
        """Store all rows kept, or none of them and raise LogUnavailable."""
        if self._events or self._requests or self._steps:
            with self._transaction() as connection:
                self._append(connection)
            self._forget_pending()

    def end(self, outcome: str, ended_at: str) -> None:
        """Store all rows kept and the run's end in one transaction."""
        assert not self._has_ended, "the run has ended"
        with self._transaction() as connection:
            self._append(connection)
            connection.exec_driver_sql(
                "INSERT INTO run_end VALUES (?, ?, ?)", (self._run_id, outcome, ended_at)
            )
        self._forget_pending()
        self._has_ended = True

    def _append(self, connection: Connection) -> None:
        """Insert the rows kept, events in the order of their keys: SQLite then fills page after
        page, which rows sorted by shape would make it split.

        The driver's own connection is used: a commit is some fifty short statements, and one costs
        five times as much through SQLAlchemy.
        """
        driver = driver_of(connection)
        try:
            for shape, rows in groupby(self._events, _shape_of):
                _insert_events(driver, self._inserts[shape], list(rows))
        except sqlite3.IntegrityError as error:
            raise LogUnavailable(
                f"run {self._run_id}: another process has gone on with it (recovered it) since: "
                "it is no longer this one's to write"
            ) from error
        driver.executemany(self._insert_request, self._requests)
        driver.executemany(self._insert_step, self._steps)

    def _forget_pending(self) -> None:
        self._events.clear()
        self._requests.clear()
        self._steps.clear()


def _insert_events(driver: sqlite3.Connection, insert: _Insert, rows: list[EventCells]) -> None:
    cells = rows if insert.cells is _WHOLE.cells else [insert.cells(row) for row in rows]
    start = 0
    for count, statement in insert.many:
        while start + count <= len(cells):
            driver.execute(statement, tuple(chain.from_iterable(cells[start : start + count])))
            start += count
    if start < len(cells):
        driver.executemany(insert.one, cells[start:])


def _renumbered(events: Sequence[EventCells], numbers: list[int]) -> list[EventCells]:
    return [(*row[:5], numbers[row[5]], *row[6:]) for row in events]
