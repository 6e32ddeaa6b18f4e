"""Keeps the `-wal` file beside a log small, and says so where somebody keeps it from that.

Committed pages are copied into the file by a thread, over a connection of its own, so that no
commit waits for it. SQLite then begins the WAL anew at a moment at which all of it is copied and
nobody reads from it. Where commits follow so fast, or readers overlap so, that there is no such
moment, one is made: new readers are sent to the file until the old ones are done. A transaction
that stays open cannot be sent anywhere; then the WAL grows, nobody waits, nothing is lost, and a
warning names the size.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from rlt_fsm import oplog

from .beside import Beside
from .sql_driver import driver_of

MIB: Final = 1 << 20
KEPT_BYTES: Final = 4 * MIB  # what the file is cut down to when it begins anew
COPY_BYTES: Final = 16 * MIB  # from here on what is in it is copied, again with each KEPT_BYTES
RESET_BYTES: Final = 32 * MIB  # from here on it is made to begin anew
HOLD_BYTES: Final = 48 * MIB  # from here on a commit waits for a copy that goes on
WARN_BYTES: Final = 64 * MIB  # nobody but a reader that stays lets it come to this
RESET_WAIT_MS: Final = 50  # how long a commit may wait for readers, once in RESET_BYTES / 2
_MOST_PASSES: Final = 3  # of one copy: each is shorter, since what came meanwhile is less

WAL_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA journal_size_limit = {KEPT_BYTES}",
)


class WalKeeper:
    """Looks at the WAL's size after each commit of a writing connection.

    Args:
        driver: the writing connection.
        connect: gives another connection to the same file.
        path: the log's file.
        name: what to call it in warnings.
        busy_timeout_ms: what the writing connection waits for a lock elsewhere.
    """

    def __init__(
        self,
        driver: sqlite3.Connection,
        connect: Callable[[], Connection],
        path: Path,
        name: str,
        busy_timeout_ms: int,
    ) -> None:
        self._driver = driver
        self._connect = connect
        self._wal = path.absolute().with_name(f"{path.name}-wal")
        self._name = name
        self._busy_timeout_ms = busy_timeout_ms
        self._beside = Beside("rlt-log-copy")
        self._copying: Future[None] | None = None
        self._copy_again_at = COPY_BYTES
        self._reset_again_at = RESET_BYTES
        self._warn_at = WARN_BYTES

    def after_commit(self) -> None:
        """Have the WAL copied, and made to begin anew, where it has grown; a call outside of
        transactions.
        """
        size = self._size()
        if size < RESET_BYTES and self._reset_again_at > RESET_BYTES:
            self._note_small()
        if size < COPY_BYTES:
            self._copy_again_at = COPY_BYTES
        elif self._is_copying and size < HOLD_BYTES:
            pass
        elif size >= self._reset_again_at:
            self._make_it_begin_anew(size)
        elif size >= self._copy_again_at:
            self._copy_beside(size)

    def close(self) -> None:
        """End what is going on beside the caller."""
        self._beside.close()

    @property
    def _is_copying(self) -> bool:
        return self._copying is not None and not self._copying.done()

    def _size(self) -> int:
        try:
            return self._wal.stat().st_size
        except OSError:  # none yet
            return 0

    # ---- copying -----------------------------------------------------------------------------

    def _copy_beside(self, size: int) -> None:
        self._copy_again_at = size + KEPT_BYTES
        self._copying = self._beside.do(self._copy)

    def _copy(self) -> None:
        """Copy what is committed, and what is committed meanwhile; in no one's way."""
        # Without space nothing is copied, and nothing lost: the WAL has it, and is warned of.
        with suppress(sqlite3.DatabaseError, DBAPIError), self._connect() as connection:
            driver = driver_of(connection)
            for _ in range(_MOST_PASSES):
                pragma = "PRAGMA wal_checkpoint(PASSIVE)"
                ((_, pages, copied),) = driver.execute(pragma).fetchall()
                if copied == pages:
                    break

    # ---- beginning anew ----------------------------------------------------------------------

    def _make_it_begin_anew(self, size: int) -> None:
        why = self._reset()
        if why is None:
            return
        self._reset_again_at = size + RESET_BYTES // 2
        if size >= self._warn_at:
            self._warn_at = 2 * size
            self._warn(f"{why}, so the WAL grows", wal_mib=size // MIB)

    def _reset(self) -> str | None:
        """Copy what is left and empty the file; None, or what keeps it from that."""
        if self._copying is not None:
            wait([self._copying])
        try:
            with self._waiting_little():
                pragma = "PRAGMA wal_checkpoint(TRUNCATE)"
                ((is_busy, _, _),) = self._driver.execute(pragma).fetchall()
        except sqlite3.DatabaseError as error:  # what was committed is in the WAL
            return f"the WAL cannot be copied into the log ({error})"
        return "a reader keeps its transaction open (end it)" if is_busy else None

    @contextmanager
    def _waiting_little(self) -> Iterator[None]:
        self._driver.execute(f"PRAGMA busy_timeout = {RESET_WAIT_MS}")
        try:
            yield
        finally:
            self._driver.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")

    def _note_small(self) -> None:
        if self._warn_at > WARN_BYTES:
            self._warn("what kept the WAL from it is gone: it is small again")
        self._reset_again_at, self._warn_at = RESET_BYTES, WARN_BYTES

    def _warn(self, what: str, **told: int) -> None:
        oplog.logger(log=self._name).warning(what, **told)
