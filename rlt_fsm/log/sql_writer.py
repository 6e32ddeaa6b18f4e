"""Appending one run to a log database: rows are kept until `commit` stores them at once.

Nobody holds the database's lock between two commits, several runs may be written at the same time,
and a commit that failed may be tried again: its rows are still here.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Final, cast

from sqlalchemy import Connection

from .port import EventCells, EventRow, LogWriter, RequestRow, StepRow
from .schema import RUN_SHIFT

# Rows that one INSERT statement carries: a third faster than one each, flat from here on.
_STATEMENT_ROWS: Final = 64


class SqlWriter(LogWriter):
    """Writes one run through short transactions that `transaction` opens.

    `numbers` maps our moves onto those of the file; None where they are the same.
    """

    def __init__(
        self,
        run_id: int,
        numbers: list[int] | None,
        transaction: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        self._run_id = run_id
        self._numbers = numbers
        self._transaction = transaction
        self._last_seq = 0
        self._has_ended = False
        self._events: list[EventCells] = []
        self._requests: list[RequestRow] = []
        self._steps: list[StepRow] = []
        # The run's number stands in the statements, so that rows go in as they are.
        row = f"(? + {run_id << RUN_SHIFT}{', ?' * (len(EventRow._fields) - 1)})"
        self._insert_event = f"INSERT INTO event_log VALUES {row}"  # noqa: S608  # numbers only
        self._insert_events = self._insert_event + f", {row}" * (_STATEMENT_ROWS - 1)
        self._insert_request = f"INSERT INTO request_ref VALUES ({run_id}, ?, ?, ?)"  # noqa: S608  # the same
        self._insert_step = f"INSERT INTO step_log VALUES ({run_id}{', ?' * 10})"  # noqa: S608  # the same

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
        whole = len(self._events) // _STATEMENT_ROWS * _STATEMENT_ROWS
        for start in range(0, whole, _STATEMENT_ROWS):
            rows = self._events[start : start + _STATEMENT_ROWS]
            connection.exec_driver_sql(self._insert_events, tuple(chain.from_iterable(rows)))
        _execute_many(connection, self._insert_event, self._events[whole:])
        _execute_many(connection, self._insert_request, self._requests)
        _execute_many(connection, self._insert_step, self._steps)

    def _forget_pending(self) -> None:
        self._events.clear()
        self._requests.clear()
        self._steps.clear()


def _execute_many(connection: Connection, statement: str, rows: Sequence[object]) -> None:
    if rows:
        connection.exec_driver_sql(statement, cast("list[tuple[object, ...]]", rows))


def _renumbered(events: Sequence[EventCells], numbers: list[int]) -> list[EventCells]:
    return [(*row[:5], numbers[row[5]], *row[6:]) for row in events]
