"""Appending one run to a log database: rows are kept until a commit stores them at once.

Nobody holds the database's lock between two commits, several runs may be written at the same time,
and a commit that failed may be tried again: its rows are still here.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from rlt_fsm.errors import LogUnavailable

from .port import EventCells, LogWriter, RequestRow, StepRow
from .sql_driver import driver_of
from .sql_inserts import insert_events


class Store(Protocol):
    """Where a run's rows go."""

    @property
    def is_storing(self) -> bool:
        """Whether a transaction would wait for what is stored beside the caller."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """A short write transaction; everything or nothing of it is stored."""

    def store_soon(self, fill: Callable[[Connection], None]) -> Future[None] | None:
        """The same, filled at once and stored beside the caller; None: it is stored already."""


class _Rows(NamedTuple):
    """Rows on their way, in order; `last_seq` is the last event's, theirs or the one before."""

    events: list[EventCells]
    requests: list[RequestRow]
    steps: list[StepRow]
    last_seq: int

    def __bool__(self) -> bool:
        return bool(self.events or self.requests or self.steps)


class _UnderWay(NamedTuple):
    """A commit that was begun."""

    rows: _Rows
    stored: Future[None]


class SqlWriter(LogWriter):
    """Writes one run through short transactions of `store`.

    `numbers` maps our moves onto those of the file; None where they are the same.
    """

    def __init__(
        self, run_id: int, numbers: list[int] | None, store: Store, *, last_seq: int = 0
    ) -> None:
        self._run_id = run_id
        self._numbers = numbers
        self._store = store
        self._durable_seq = last_seq
        self._has_ended = False
        self._rows = _Rows([], [], [], last_seq)
        self._under_way: _UnderWay | None = None
        self._insert_request = f"INSERT INTO request_ref VALUES ({run_id}, ?, ?, ?)"  # noqa: S608  # numbers only
        self._insert_step = f"INSERT INTO step_log VALUES ({run_id}{', ?' * 10})"  # noqa: S608  # numbers only

    @property
    def run_id(self) -> int:
        """The run's number in its log."""
        return self._run_id

    @property
    def durable_seq(self) -> int:
        """The last event that is known to be stored."""
        begun = self._under_way
        if begun is not None and begun.stored.done() and begun.stored.exception() is None:
            return begun.rows.last_seq
        return self._durable_seq

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        """Keep rows for the next commit; costs no more than a list's `extend`."""
        assert not self._has_ended, "the run has ended"
        rows = self._rows
        if events:
            assert events[0][0] > rows.last_seq, f"seq {events[0][0]} was written before"
            rows.events.extend(
                events if self._numbers is None else _renumbered(events, self._numbers)
            )
            self._rows = rows._replace(last_seq=events[-1][0])
        rows.requests.extend(requests)
        rows.steps.extend(steps)

    def commit(self) -> None:
        """Store all rows kept, or none of them and raise LogUnavailable."""
        self.conclude()
        if self._rows:
            with self._store.transaction() as connection:
                self._append(connection)
            self._note_stored()

    def commit_soon(self) -> bool:
        """Append all rows kept, and let the database store them beside the caller."""
        if self._under_way is not None and self._under_way.stored.done():
            self.conclude()
        if self._store.is_storing or not self._rows:
            return False
        stored = self._store.store_soon(self._append)
        if stored is None:
            self._note_stored()
            return True
        self._under_way = _UnderWay(self._rows, stored)
        self._rows = _Rows([], [], [], self._rows.last_seq)
        return True

    def conclude(self) -> None:
        """Wait for the commit that was begun; one that failed raises, its rows are kept again."""
        begun, self._under_way = self._under_way, None
        if begun is None:
            return
        error = begun.stored.exception()
        if error is None:
            self._durable_seq = begun.rows.last_seq
            return
        first, then = begun.rows, self._rows
        self._rows = _Rows(
            first.events + then.events,
            first.requests + then.requests,
            first.steps + then.steps,
            then.last_seq,
        )
        raise error

    def end(self, outcome: str, ended_at: str) -> None:
        """Store all rows kept and the run's end in one transaction."""
        assert not self._has_ended, "the run has ended"
        self.conclude()
        with self._store.transaction() as connection:
            self._append(connection)
            with self._told_apart():
                driver_of(connection).execute(
                    "INSERT INTO run_end VALUES (?, ?, ?)", (self._run_id, outcome, ended_at)
                )
        self._note_stored()
        self._has_ended = True

    def _append(self, connection: Connection) -> None:
        driver, rows = driver_of(connection), self._rows
        with self._told_apart():
            insert_events(driver, self._run_id, rows.events)
            driver.executemany(self._insert_request, rows.requests)
            driver.executemany(self._insert_step, rows.steps)

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

    def _note_stored(self) -> None:
        self._durable_seq = self._rows.last_seq
        self._rows = _Rows([], [], [], self._durable_seq)


def _renumbered(events: Sequence[EventCells], numbers: list[int]) -> list[EventCells]:
    return [(*row[:5], numbers[row[5]], *row[6:]) for row in events]
