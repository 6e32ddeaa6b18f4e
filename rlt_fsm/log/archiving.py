"""Taking a run's first events out of a log file, into an archive: copy, compare, name, let go.

The archive is a log itself: the run's header, its events and steps up to a checkpoint, and the
checkpoint with which it begins, if it is not the first. It gets its name only when it is whole and
on the disk; the log forgets the events only then, in one small transaction, and gives their space
free in short ones, beside a writer. Whoever is killed at any moment has lost nothing: what is left
of a copy is made again, what is left of a deletion is deleted next time.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rlt_fsm.errors import LogUnavailable

from .location import locate
from .new_file import whole_new_file
from .port import Checkpoint, EventRow
from .schema import ARCHIVED_VERSION, BEGIN_LATER, CREATE, RUN_SHIFT, SEQ_MASK
from .sql_errors import translated
from .sql_store import SqlStore

# At once, each in a transaction of some milliseconds: a longer one would let the WAL grow.
COPIED_ROWS: Final = 2_000
DELETED_ROWS: Final = 10_000  # at once; the writer waits so long
PAUSE_S: Final = 0.002  # between two deletions, for a writer that waits

_COLUMNS: Final = EventRow._fields[1:]


def move_prefix(
    url_or_path: str | Path,
    archive: Path | None,
    checkpoint: Checkpoint,
    *,
    has_recovery: bool,
    is_there: bool = False,
) -> int:
    """Take the events up to a checkpoint out of the log; `archive` None: delete them.

    Returns the seq after which they begin. `has_recovery`: a `recover` is among them. `is_there`:
    the archive was made by somebody who did not come to letting go.

    Raises:
        LogUnavailable: the archive is there already, cannot be written, or is not what was copied;
            the log is as it was. Or the log cannot be written now; then do it again.
    """
    path = locate(url_or_path, read_only=True).path
    after = None
    if archive is not None:
        after = (_held_against if is_there else _write)(path, archive, checkpoint)
    with SqlStore(path, read_only=False) as log:
        begins_after = _begin_at(log, after, checkpoint, has_recovery=has_recovery)
        while _delete_some(log, checkpoint):
            time.sleep(PAUSE_S)
    return begins_after


# ---- the archive ---------------------------------------------------------------------------------


def _write(path: Path, archive: Path, checkpoint: Checkpoint) -> int:
    """Make the archive; the seq after which it begins."""
    with (
        whole_new_file(archive) as part,
        translated(str(archive)),
        closing(sqlite3.connect(f"file:{quote(str(part))}", uri=True, isolation_level=None)) as own,
    ):
        for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *CREATE):
            own.execute(statement)
        own.execute("ATTACH ? AS live", (f"file:{quote(str(path))}?mode=ro",))
        before = _checkpoint_before(own, checkpoint.run_id)
        _copy(own, before, checkpoint)
        _require_the_same(own, archive, before, checkpoint)
        if _checkpoint_before(own, checkpoint.run_id) != before:
            raise LogUnavailable(
                f"{path}: run {checkpoint.run_id} was archived by another process meanwhile"
            )
    return 0 if before is None else before[1]


def _held_against(path: Path, archive: Path, checkpoint: Checkpoint) -> int:
    """Require that an archive is what `_write` would make; the seq after which it begins."""
    uri = f"file:{quote(str(archive))}?mode=ro"
    with (
        translated(str(archive)),
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as own,
    ):
        own.execute("ATTACH ? AS live", (f"file:{quote(str(path))}?mode=ro",))
        before = _checkpoint_before(own, checkpoint.run_id)
        if not _is_about_the_same(own, before, checkpoint):
            raise LogUnavailable(
                f"{archive}: this is not what was copied from {path} up to step "
                f"{checkpoint.step}: move it away, or give another folder"
            )
        _require_the_same(own, archive, before, checkpoint)
    return 0 if before is None else before[1]


def _is_about_the_same(
    connection: sqlite3.Connection, before: tuple[int, int] | None, checkpoint: Checkpoint
) -> bool:
    """Whether an archive has the log's run and begins and ends where it must."""
    run_id, first = checkpoint.run_id, 1 if before is None else before[1] + 1
    sql = """SELECT
        (SELECT group_concat(started_at) FROM run_log)
            IS (SELECT started_at FROM live.run_log WHERE run_id = ?),
        (SELECT min(key) FROM event_log), (SELECT max(key) FROM event_log),
        (SELECT digest FROM step_log WHERE run_id = ? AND step = ?)"""
    row = connection.execute(sql, (run_id, run_id, checkpoint.step)).fetchone()
    base = run_id << RUN_SHIFT
    return bool(row == (1, base + first, base + checkpoint.seq, checkpoint.digest))


def _copy(
    connection: sqlite3.Connection, before: tuple[int, int] | None, checkpoint: Checkpoint
) -> None:
    run_id = checkpoint.run_id
    connection.execute("INSERT INTO run_log SELECT * FROM live.run_log WHERE run_id = ?", (run_id,))
    connection.execute("INSERT INTO move SELECT * FROM live.move")
    connection.execute("INSERT INTO move_edge SELECT * FROM live.move_edge")
    copy_numbered(connection, "live", "request_ref", "ref", run_id, after=-1)
    if before is not None:
        _copy_beginning(connection, run_id)
    first = -1 if before is None else before[0]
    copy_numbered(
        connection, "live", "step_log", "step", run_id, after=first, until=checkpoint.step
    )
    for keys in _ranges(before, checkpoint):
        connection.execute(
            "INSERT INTO event_log SELECT * FROM live.event_log WHERE key > ? AND key <= ?", keys
        )


def _copy_beginning(connection: sqlite3.Connection, run_id: int) -> None:
    """The checkpoint with which the run begins in the log now, and what it stands for."""
    for statement in BEGIN_LATER:
        connection.execute(statement)
    tables = ["checkpoint"]
    sql = "SELECT name FROM live.sqlite_master WHERE name = 'recovered_run'"
    tables += [name for (name,) in connection.execute(sql)]  # an earlier version made none
    for table in tables:
        connection.execute(
            f"INSERT INTO {table} SELECT * FROM live.{table} WHERE run_id = ?",  # noqa: S608  # names of ours
            (run_id,),
        )


def copy_numbered(
    connection: sqlite3.Connection,
    source: str,
    table: str,
    number: str,
    run_id: int,
    *,
    after: int,
    until: int = SEQ_MASK,
) -> None:
    """Copy a run's rows of a table that numbers them, COPIED_ROWS at a time."""
    insert = (
        f"INSERT INTO {table} SELECT * FROM {source}.{table} "  # noqa: S608  # names of ours
        f"WHERE run_id = ? AND {number} > ? AND {number} <= ? ORDER BY {number} LIMIT ?"
    )
    last = f"SELECT max({number}) FROM {table} WHERE run_id = ?"  # noqa: S608  # the same
    while connection.execute(insert, (run_id, after, until, COPIED_ROWS)).rowcount:
        ((after,),) = connection.execute(last, (run_id,)).fetchall()


def _checkpoint_before(connection: sqlite3.Connection, run_id: int) -> tuple[int, int] | None:
    """The step and the seq after which the run begins in the log now."""
    ((version,),) = connection.execute("PRAGMA live.user_version").fetchall()
    if version != ARCHIVED_VERSION:
        return None
    sql = "SELECT step, seq FROM live.checkpoint WHERE run_id = ?"
    rows: list[tuple[int, int]] = connection.execute(sql, (run_id,)).fetchall()
    return rows[0] if rows else None


def _ranges(before: tuple[int, int] | None, checkpoint: Checkpoint) -> Iterator[tuple[int, int]]:
    """(after, up to) of the keys, COPIED_ROWS at a time."""
    base = checkpoint.run_id << RUN_SHIFT
    first = 0 if before is None else before[1]
    for after in range(first, checkpoint.seq, COPIED_ROWS):
        yield base + after, base + min(after + COPIED_ROWS, checkpoint.seq)


def _require_the_same(
    connection: sqlite3.Connection,
    archive: Path,
    before: tuple[int, int] | None,
    checkpoint: Checkpoint,
) -> None:
    """Hold every event of the copy against the log's."""
    own = ", ".join(f"a.{name}" for name in _COLUMNS)
    others = ", ".join(f"l.{name}" for name in _COLUMNS)
    sql = (
        "SELECT count(*) FROM live.event_log AS l JOIN event_log AS a ON a.key = l.key "  # noqa: S608  # fixed names
        f"WHERE l.key > ? AND l.key <= ? AND ({own}) IS ({others})"
    )
    for after, until in _ranges(before, checkpoint):
        ((same,),) = connection.execute(sql, (after, until)).fetchall()
        if same != until - after:
            raise LogUnavailable(
                f"{archive}: {until - after - same} events were not copied as they are: "
                "the log is as it was"
            )


# ---- the log -------------------------------------------------------------------------------------


def _begin_at(
    log: SqlStore, after: int | None, checkpoint: Checkpoint, *, has_recovery: bool
) -> int:
    """From now on the run begins after the checkpoint; the events before it are leftovers.

    Returns the seq after which it began. `after` is the seq after which their archive begins: as
    the log does still, or it is refused.
    """
    with log.transaction() as connection:
        for statement in BEGIN_LATER:
            connection.exec_driver_sql(statement)
        sql = "SELECT seq FROM checkpoint WHERE run_id = ?"
        begins_at = connection.exec_driver_sql(sql, (checkpoint.run_id,)).scalar() or 0
        if begins_at >= checkpoint.seq or after not in {None, begins_at}:
            raise LogUnavailable(
                f"{log.name}: run {checkpoint.run_id} was archived up to seq {begins_at} by "
                "another process meanwhile"
            )
        sql = "INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?)"
        connection.exec_driver_sql(sql, tuple(checkpoint))
        if has_recovery:
            sql = "INSERT OR IGNORE INTO recovered_run VALUES (?)"
            connection.exec_driver_sql(sql, (checkpoint.run_id,))
        return int(begins_at)


def _delete_some(log: SqlStore, checkpoint: Checkpoint) -> bool:
    """Delete the next leftovers; whether there may be more."""
    run_id, base = checkpoint.run_id, checkpoint.run_id << RUN_SHIFT
    with log.transaction() as connection:
        sql = "SELECT min(key) FROM event_log WHERE key BETWEEN ? AND ?"
        first = connection.exec_driver_sql(sql, (base, base + checkpoint.seq)).scalar()
        if first is None:
            sql = "DELETE FROM step_log WHERE run_id = ? AND step <= ?"
            connection.exec_driver_sql(sql, (run_id, checkpoint.step))
            return False
        until = min(first + DELETED_ROWS - 1, base + checkpoint.seq)
        sql = """DELETE FROM step_log WHERE run_id = ? AND step < coalesce(
            (SELECT step FROM event_log WHERE key = ?), 0)"""
        connection.exec_driver_sql(sql, (run_id, until))
        sql = "DELETE FROM event_log WHERE key BETWEEN ? AND ?"
        connection.exec_driver_sql(sql, (base, until))
        return True
