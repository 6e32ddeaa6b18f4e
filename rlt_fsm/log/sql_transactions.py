"""The write transactions of one log: one at a time, stored by the caller or beside it.

To store rows is to bind values, which is Python, and then to COMMIT, which is the disk. The caller
always fills a transaction itself. Where the disk is slow, its COMMIT may be left to a thread, which
needs the interpreter's lock for microseconds only; where it is fast a thread costs more than it.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Final

from sqlalchemy import Connection, RootTransaction

from rlt_fsm import oplog

from .beside import Beside
from .sql_driver import driver_of
from .sql_errors import is_busy, translated
from .wal import WalKeeper

SLOW_COMMIT_S: Final = 0.001
SLOW_IN_A_ROW: Final = 3  # one may be chance
# SQLite by itself soon looks once in 100 ms, and misses the pauses of a writer on a slow disk.
LOOK_AGAIN_MS: Final = 10


def begin_immediately(connection: Connection, wait_ms: int) -> None:
    """Take the write lock, or wait for it; `busy_timeout` says how long SQLite does at a time."""
    give_up_at = time.monotonic() + wait_ms / 1000
    while True:
        try:
            driver_of(connection).execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= give_up_at:
                raise
        else:
            return


class Transactions:
    """Begins and stores transactions on the one writing connection of a log called `name`."""

    def __init__(self, connection: Connection, name: str, wal: WalKeeper) -> None:
        self._connection = connection
        self._name = name
        self._wal = wal
        self._beside = Beside("rlt-log-commit")
        self._under_way: Future[None] | None = None  # a COMMIT
        self._looking: Future[None] | None = None  # at the WAL, after it
        self._slow_in_a_row = 0

    @property
    def is_storing(self) -> bool:
        """Whether a new transaction would wait for what is done beside the caller still."""
        return self._looking is not None and not self._looking.done()

    @contextmanager
    def now(self) -> Iterator[Connection]:
        """A short write transaction; everything or nothing of it is stored when this ends."""
        self._wait()
        with translated(self._name):
            with self._connection.begin():
                yield self._connection
            self._wal.after_commit()

    def soon(self, fill: Callable[[Connection], None]) -> Future[None] | None:
        """Fill a transaction and store it; beside the caller where that takes long.

        The future ends when it is stored, or with the LogError why nothing of it is. None: it is
        stored already.
        """
        self._wait()
        with translated(self._name):
            transaction = self._connection.begin()
            try:
                fill(self._connection)
            except BaseException:
                transaction.rollback()
                raise
        if self._slow_in_a_row < SLOW_IN_A_ROW:
            began = time.perf_counter()
            self._store(transaction)
            is_slow = time.perf_counter() - began >= SLOW_COMMIT_S
            self._slow_in_a_row = self._slow_in_a_row + 1 if is_slow else 0
            self._wal.after_commit()
            return None
        self._under_way = self._beside.do(partial(self._store, transaction))
        self._looking = self._beside.do(self._wal.after_commit)
        return self._under_way

    def _store(self, transaction: RootTransaction) -> None:
        with translated(self._name):
            try:
                transaction.commit()
            except BaseException:
                transaction.rollback()
                driver_of(self._connection).rollback()  # a COMMIT that fails may leave it open
                raise

    def _wait(self) -> None:
        """The connection is ours again; who left something to be stored hears what became of it."""
        if self._looking is not None:
            wait([self._looking])
        self._under_way = self._looking = None

    def close(self) -> None:
        """Store what is under way, or warn that it is not; begin nothing more."""
        if self._under_way is not None and (error := self._under_way.exception()) is not None:
            oplog.logger(log=self._name).warning("the last commit is not stored", error=str(error))
        self._under_way = None
        self._beside.close()
