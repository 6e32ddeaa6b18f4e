"""EventLog: what users open, and the base of every adapter. No SQL and no rows here.

log = EventLog.open("run.db")            # to write and read; made where there is none
log = EventLog.memory()                  # gone with the process
log = EventLog.open_for_reading(path)    # never makes or changes a file
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from rlt_fsm.arguments import whole
from rlt_fsm.errors import NotALog

from .port import EventStore

BUSY_TIMEOUT_MS = 5000
MOST_WAIT_MS = 2**31 - 1  # what SQLite can wait


class EventLog(EventStore):
    """One log of one or many runs; adapters derive from it."""

    @staticmethod
    def open(url_or_path: str | Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> "EventLog":
        """A log to write to and read from; a path is an SQLite file, made where there is none.

        Also takes a SQLAlchemy URL (`sqlite:///run.db`); `:memory:` is `EventLog.memory()`. Waits
        up to `busy_timeout_ms` for a lock that another process holds.

        Raises:
            NotALog: the file is something else; it was not touched.
            UnknownSchema: another version wrote it.
            LogUnavailable: it cannot be made, opened or written, or another process locks it.
        """
        from .location import MEMORY_LOCATIONS  # noqa: PLC0415  # SQLAlchemy loads on first use
        from .sql_store import SqlStore  # noqa: PLC0415  # the same

        _check_wait(busy_timeout_ms)
        if str(url_or_path) in MEMORY_LOCATIONS:
            return EventLog.memory()
        return SqlStore(url_or_path, read_only=False, busy_timeout_ms=busy_timeout_ms)

    @staticmethod
    def open_for_reading(
        url_or_path: str | Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> "EventLog":
        """A log to read from, also while another process writes it; it must exist.

        An SQLite database of another engine is a log too if it has the public names (contract §4).

        Raises:
            NotALog: the file is something else, or lacks what a log needs.
            UnknownSchema: another version wrote it.
            LogUnavailable: it is missing, cannot be opened, or another process locks it.
        """
        _check_wait(busy_timeout_ms)
        from .foreign_log import ForeignLog, has_public_names  # noqa: PLC0415  # the same
        from .sql_store import SqlStore  # noqa: PLC0415  # SQLAlchemy loads on first use

        try:
            return SqlStore(url_or_path, read_only=True, busy_timeout_ms=busy_timeout_ms)
        except NotALog:
            if not has_public_names(url_or_path):
                raise
        return ForeignLog(url_or_path, busy_timeout_ms=busy_timeout_ms)

    @staticmethod
    def memory() -> "EventLog":
        """A log that lives in this process only."""
        from .memory import MemoryLog  # noqa: PLC0415  # it derives from this class

        return MemoryLog()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check_wait(busy_timeout_ms: object) -> None:
    whole("busy_timeout_ms", busy_timeout_ms, least=0, most=MOST_WAIT_MS)
