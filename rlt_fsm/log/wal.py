"""Keeps the `-wal` file beside a log small, and says so where somebody keeps it from that.

SQLite copies committed pages into the file by itself, but begins the WAL anew only at a moment at
which nobody reads from it. Readers that overlap leave no such moment, so one is made here: new
readers are sent to the file until the old ones are done. A transaction that stays open cannot be
sent anywhere; then the WAL grows, nobody waits, nothing is lost, and a warning names the size.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlt_fsm import oplog

MIB: Final = 1 << 20
AUTOCHECKPOINT_PAGES: Final = 4000  # about 16 MiB
KEPT_BYTES: Final = 16 * MIB  # what the file is cut down to when it begins anew
RESET_BYTES: Final = 32 * MIB  # from here on it is made to begin anew
WARN_BYTES: Final = 64 * MIB  # nobody but a reader that stays lets it come to this
RESET_WAIT_MS: Final = 50  # how long a commit may wait for readers, once in RESET_BYTES / 2

WAL_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}",
    f"PRAGMA journal_size_limit = {KEPT_BYTES}",
)


class WalKeeper:
    """Looks at the WAL's size after each commit of a writing connection.

    Args:
        driver: the writing connection.
        path: the log's file.
        name: what to call it in warnings.
        busy_timeout_ms: what the connection waits for a lock elsewhere.
    """

    def __init__(
        self, driver: sqlite3.Connection, path: Path, name: str, busy_timeout_ms: int
    ) -> None:
        self._driver = driver
        self._wal = path.with_name(f"{path.name}-wal")
        self._name = name
        self._busy_timeout_ms = busy_timeout_ms
        self._look_again_at = RESET_BYTES
        self._warn_at = WARN_BYTES

    def after_commit(self) -> None:
        """Make the WAL begin anew where it has grown; a call outside of transactions."""
        size = self._size()
        if size < RESET_BYTES:
            if self._look_again_at > RESET_BYTES:
                self._note_small()
        elif size >= self._look_again_at and not self._reset():
            self._note_blocked(size)

    def _note_small(self) -> None:
        if self._warn_at > WARN_BYTES:
            self._warn("the reader is gone, the WAL is small again")
        self._look_again_at, self._warn_at = RESET_BYTES, WARN_BYTES

    def _note_blocked(self, size: int) -> None:
        self._look_again_at = size + RESET_BYTES // 2
        if size >= self._warn_at:
            self._warn_at = 2 * size
            self._warn(
                "a reader keeps its transaction open, so the WAL grows: end it", wal_mib=size // MIB
            )

    def _warn(self, what: str, **told: int) -> None:
        oplog.logger(log=self._name).warning(what, **told)

    def _size(self) -> int:
        try:
            return self._wal.stat().st_size
        except OSError:  # none yet
            return 0

    def _reset(self) -> bool:
        try:
            with self._waiting_little():
                pragma = "PRAGMA wal_checkpoint(TRUNCATE)"
                ((is_busy, _, _),) = self._driver.execute(pragma).fetchall()
        except sqlite3.DatabaseError:  # no space to copy to: what was committed is in the WAL
            return False
        return not is_busy

    @contextmanager
    def _waiting_little(self) -> Iterator[None]:
        self._driver.execute(f"PRAGMA busy_timeout = {RESET_WAIT_MS}")
        try:
            yield
        finally:
            self._driver.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
