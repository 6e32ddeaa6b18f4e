"""The event log in an SQLite file, through SQLAlchemy: opening, beginning a run, closing.

While a log is open for writing it is in WAL mode, so that other processes read what is committed
and nobody waits. A closed one is one plain file in rollback mode, readable from a read-only place.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import NullPool

from rlt_fsm.errors import LogUnavailable, NotALog, UnknownSchema

from .event_log import BUSY_TIMEOUT_MS, EventLog
from .location import check_place, locate
from .move_rows import edges, match
from .port import LogReader, LogWriter, MoveRow, RunHeader
from .schema import (
    APPLICATION_ID,
    CREATE,
    KNOWN_VERSIONS,
    REQUEST_INDEX,
    RUN_SHIFT,
    SEQ_MASK,
)
from .sql_driver import driver_of
from .sql_errors import translated
from .sql_reader import SqlReader
from .sql_transactions import LOOK_AGAIN_MS, Transactions, begin_immediately
from .sql_writer import SqlWriter
from .wal import WAL_PRAGMAS, WalKeeper

_WRITER_PRAGMAS = (
    *WAL_PRAGMAS,
    "PRAGMA synchronous = NORMAL",  # survives the process; a power cut may cost the last commits
)


class SqlStore(EventLog):
    """An event log in an SQLite file, with one connection for writing and one for reading."""

    def __init__(
        self,
        url_or_path: str | Path,
        *,
        read_only: bool,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        place = locate(url_or_path, read_only=read_only)
        check_place(place, read_only=read_only)
        self._name = place.name
        self._path = place.path
        self._read_only = read_only
        self._busy_timeout_ms = busy_timeout_ms
        self._engine = create_engine(
            place.url,
            poolclass=NullPool,
            connect_args={"timeout": busy_timeout_ms / 1000, "check_same_thread": False},
        )
        # Transactions are ours to begin: the driver's implicit ones take the lock too late.
        event.listen(self._engine, "connect", _leave_transactions_to_us)
        event.listen(self._engine, "begin", lambda c: begin_immediately(c, busy_timeout_ms))
        self._writing: Connection | None = None
        self._reading: Connection | None = None
        self._wal: WalKeeper | None = None
        self._transactions: Transactions | None = None
        try:
            with translated(self._name):
                self._open()
        except BaseException:
            self._disconnect()
            raise

    @property
    def name(self) -> str:
        """The path or URL as it was given."""
        return self._name

    def _open(self) -> None:
        if self._read_only:
            self._reading = self._engine.connect()
            is_new = not is_log(driver_of(self._reading), self._name)
            if is_new:
                raise NotALog(f"{self._name}: this is not an event log (an empty file)")
            return
        self._writing = self._engine.connect()
        driver = driver_of(self._writing)
        is_log(driver, self._name)  # before anything is changed
        for pragma in _WRITER_PRAGMAS:
            driver.execute(pragma)
        look_again_ms = min(LOOK_AGAIN_MS, self._busy_timeout_ms)
        driver.execute(f"PRAGMA busy_timeout = {look_again_ms}")  # from here on only BEGIN waits
        with self._writing.begin():
            if not is_log(driver, self._name):  # asked again: another process may have made it
                for statement in CREATE:
                    self._writing.exec_driver_sql(statement)
            self._writing.exec_driver_sql(REQUEST_INDEX)
            # Changes nothing, but a read-only file refuses it now and not at the first commit.
            self._writing.exec_driver_sql("UPDATE run_log SET run_id = run_id WHERE FALSE")
        self._wal = WalKeeper(driver, self._engine.connect, self._path, self._name, look_again_ms)
        self._transactions = Transactions(self._writing, self._name, self._wal)

    @property
    def _open_transactions(self) -> Transactions:
        if self._transactions is None:
            why = "it was opened for reading" if self._read_only else "the log is closed"
            raise LogUnavailable(f"{self._name}: nothing can be stored: {why}")
        return self._transactions

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A short write transaction; everything or nothing of it is stored."""
        with self._open_transactions.now() as connection:
            yield connection

    @property
    def is_storing(self) -> bool:
        """Whether a transaction would wait for what is stored beside the caller."""
        return self._open_transactions.is_storing

    def store_soon(self, fill: Callable[[Connection], None]) -> Future[None] | None:
        """A short write transaction, stored beside the caller where that takes long."""
        return self._open_transactions.soon(fill)

    def begin_run(self, header: RunHeader) -> LogWriter:
        """Store a new run's header; moves that the file lacks are added to it."""
        with self.transaction() as connection:
            numbers = _numbers_of_moves(connection)
            run_id = connection.exec_driver_sql(
                "INSERT INTO run_log VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", tuple(header)
            ).lastrowid
        return SqlWriter(run_id, numbers, self)

    def continue_run(self, run_id: int) -> LogWriter:
        """Go on with a run after its last event; moves that the file lacks are added to it."""
        base = run_id << RUN_SHIFT
        with self.transaction() as connection:
            numbers = _numbers_of_moves(connection)
            last_key = connection.exec_driver_sql(
                "SELECT max(key) FROM event_log WHERE key BETWEEN ? AND ?", (base, base + SEQ_MASK)
            ).scalar()
        last_seq = 0 if last_key is None else last_key - base
        return SqlWriter(run_id, numbers, self, last_seq=last_seq)

    def reader(self) -> LogReader:
        """A reader on the log's own second connection."""
        return SqlReader(self._name, self._connection_for_reading)

    def generation_lookup(self, run_id: int) -> Callable[[str], int]:
        """A search in an index."""

        def newest(request_id: str) -> int:
            return SqlReader(self._name, self._connection_for_reading).generation(
                run_id, request_id
            )

        return newest

    def _connection_for_reading(self) -> sqlite3.Connection:
        if self._reading is None:
            if self._writing is None:
                raise LogUnavailable(f"{self._name}: nothing can be read: the log is closed")
            self._reading = self._engine.connect()
            driver_of(self._reading).execute("PRAGMA query_only = ON")
        return driver_of(self._reading)

    def damage(self) -> str | None:
        """What SQLite finds wrong: pages, and values that no column of their type can hold."""
        try:
            ((first,),) = self._connection_for_reading().execute("PRAGMA quick_check(1)").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return str(error)
        return None if first == "ok" else str(first)

    def close(self) -> None:
        """Leave one plain file behind, where no one else has it open."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        if self._wal is not None:
            self._wal.close()
            self._wal = None
        if self._writing is not None:
            # Where others read, or no space is left, the WAL stays, with every committed row in it.
            with suppress(sqlite3.DatabaseError):
                driver = driver_of(self._writing)
                driver.execute("PRAGMA busy_timeout = 0")
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                driver.execute("PRAGMA journal_mode = DELETE")
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = None
        self._engine.dispose()


def is_log(driver: sqlite3.Connection, name: str) -> bool:
    """Whether the database holds a log of a version we know; False where it holds nothing yet.

    Raises:
        NotALog: it holds something else.
        UnknownSchema: it holds a log of another version.
    """
    with _one_snapshot(driver):  # or another process makes the log between two of the questions
        ((application_id,),) = driver.execute("PRAGMA application_id").fetchall()
        ((version,),) = driver.execute("PRAGMA user_version").fetchall()
        ((objects,),) = driver.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if (application_id, version, objects) == (0, 0, 0):
        return False
    if application_id != APPLICATION_ID:
        raise NotALog(f"{name}: this is an SQLite database, but not an event log")
    if version not in KNOWN_VERSIONS:
        known = ", ".join(map(str, KNOWN_VERSIONS))
        raise UnknownSchema(
            f"{name}: the log has schema version {version}; this rlt-fsm knows {known}: "
            "use the version that wrote it"
        )
    return True


@contextmanager
def _one_snapshot(driver: sqlite3.Connection) -> Iterator[None]:
    """What is read inside is of one moment; inside a transaction it is anyway."""
    if driver.in_transaction:
        yield
        return
    driver.execute("BEGIN")
    try:
        yield
    finally:
        driver.execute("ROLLBACK")


def _numbers_of_moves(connection: Connection) -> list[int] | None:
    """The file's number of each of our moves (None: the same); those that it lacks are added."""
    rows = connection.exec_driver_sql("SELECT * FROM move ORDER BY move_id").fetchall()
    numbers, missing = match([MoveRow(*row) for row in rows])
    _add_moves(connection, missing)
    return numbers


def _add_moves(connection: Connection, rows: Sequence[MoveRow]) -> None:
    if not rows:
        return
    connection.exec_driver_sql(
        "INSERT INTO move VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [tuple(row) for row in rows]
    )
    by_machine = [
        (row.move, ordinal, *edge) for row in rows for ordinal, edge in enumerate(edges(row))
    ]
    if by_machine:
        connection.exec_driver_sql("INSERT INTO move_edge VALUES (?, ?, ?, ?, ?)", by_machine)


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
