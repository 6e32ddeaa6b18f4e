"""Appending one run to a log database: rows are kept until `commit` stores them at once.

Nobody holds the database's lock between two commits, several runs may be written at the same time,
and a commit that failed may be tried again: its rows are still here.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import Connection

from rlt_fsm.errors import LogUnavailable

from .port import EventCells, LogWriter, RequestRow, StepRow
from .sql_driver import driver_of
from .sql_inserts import insert_events


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
            with self._told_apart():
                driver_of(connection).execute(
                    "INSERT INTO run_end VALUES (?, ?, ?)", (self._run_id, outcome, ended_at)
                )
        self._forget_pending()
        self._has_ended = True

    def _append(self, connection: Connection) -> None:
        driver = driver_of(connection)
        with self._told_apart():
            insert_events(driver, self._run_id, self._events)
            driver.executemany(self._insert_request, self._requests)
            driver.executemany(self._insert_step, self._steps)

    @contextmanager
    def _told_apart(self) -> Iterator[None]:
        """A row that is there already is another writer's, who has gone on with this run."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise LogUnavailable(
                f"run {self._run_id}: another process has gone on with it (recovered it) since: "
                "it is no longer this one's to write"
            ) from error

    def _forget_pending(self) -> None:
        self._events.clear()
        self._requests.clear()
        self._steps.clear()


def _renumbered(events: Sequence[EventCells], numbers: list[int]) -> list[EventCells]:
    return [(*row[:5], numbers[row[5]], *row[6:]) for row in events]
