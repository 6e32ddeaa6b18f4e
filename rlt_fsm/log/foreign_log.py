"""A log that another engine wrote: an SQLite database with tables or views of the public names.

It is only ever read. What it must have is checked when it is opened; what it may lack is told by
its reader (`absent`).
"""

import sqlite3
from pathlib import Path
from typing import Final

from rlt_fsm.errors import LogUnavailable, NotALog

from .event_log import BUSY_TIMEOUT_MS, EventLog
from .foreign_reader import ForeignReader
from .foreign_rows import STATE_COLUMNS
from .foreign_source import Columns
from .location import check_place, locate
from .port import LogReader, LogWriter, RunHeader
from .sql_errors import translated

# Without these nothing can be said about a run. A column may hold NULL where it does not apply.
MANDATORY: Final[dict[str, tuple[str, ...]]] = {
    "run": ("run_id", "config", "model"),
    "event": (
        "run_id", "seq", "step", "ticket", "request_id", "generation", "trigger", *STATE_COLUMNS,
        "data",
    ),
    "step": ("run_id", "step", "first_seq", "last_seq"),  # of a log that has it
}  # fmt: skip
OPTIONAL: Final = frozenset({"step"})
READ: Final = (*MANDATORY, "batch", "batch_row", "output")


class ForeignLog(EventLog):
    """A log of another engine, open for reading."""

    def __init__(self, url_or_path: str | Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._name = str(url_or_path)
        self._connection: sqlite3.Connection | None = read_only(url_or_path, busy_timeout_ms)
        try:
            with translated(self._name):
                self._columns = _columns(self._connection)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """One sentence for the first thing that is missing."""
        for view, needed in MANDATORY.items():
            if view not in self._columns:
                if view not in OPTIONAL:
                    raise self._lacks(f"no table or view `{view}`")
                continue
            for column in needed:
                if column not in self._columns[view]:
                    raise self._lacks(f"no column `{column}` in `{view}`")

    def _lacks(self, what: str) -> NotALog:
        return NotALog(
            f"{self._name}: this is an SQLite database, but not an event log: it has {what}, "
            "which a log needs"
        )

    @property
    def name(self) -> str:
        """The path or URL as it was given."""
        return self._name

    def begin_run(self, header: RunHeader) -> LogWriter:
        """Always refused: the log is another engine's."""
        del header
        raise LogUnavailable(f"{self._name}: nothing can be stored: another engine wrote this log")

    def continue_run(self, run_id: int) -> LogWriter:
        """Always refused: the log is another engine's."""
        raise LogUnavailable(
            f"{self._name}: run {run_id} cannot go on: another engine wrote this log"
        )

    def reader(self) -> LogReader:
        """A reader on the log's connection."""
        if self._connection is None:
            raise LogUnavailable(f"{self._name}: nothing can be read: the log is closed")
        return ForeignReader(self._name, self._connection, self._columns)

    def close(self) -> None:
        """Let the file go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def has_public_names(url_or_path: str | Path) -> bool:
    """Whether it is an SQLite database with a `run` or an `event`, if not a whole log."""
    connection = read_only(url_or_path, BUSY_TIMEOUT_MS)
    try:
        with translated(str(url_or_path)):
            return not {"run", "event"}.isdisjoint(_columns(connection))
    finally:
        connection.close()


def read_only(url_or_path: str | Path, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection that can neither make nor change a file; transactions are the caller's.

    Raises:
        LogUnavailable: there is no such file, or it cannot be opened.
    """
    place = locate(url_or_path, read_only=True)
    check_place(place, read_only=True)
    with translated(place.name):
        return sqlite3.connect(
            f"{place.url.database}?mode=ro",
            uri=True,
            timeout=busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )


def _columns(connection: sqlite3.Connection) -> Columns:
    """The columns of those public names that the database has."""
    found = {}
    for view in READ:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (view,)).fetchall()
        if rows:
            found[view] = frozenset(name.lower() for (name,) in rows)
    return found
