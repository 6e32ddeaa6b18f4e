"""Puts the parts of a log together again: one file with every run from its first event on."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rlt_fsm.errors import LogUnavailable

from .archiving import COPIED_ROWS, copy_numbered
from .chained import ChainedLog
from .schema import ARCHIVED_VERSION, CREATE, RUN_SHIFT
from .sql_errors import translated


def join(parts: Sequence[str | Path], into: Path) -> None:
    """Write the log that the parts were, its archives given first, the oldest first.

    Raises:
        LogError: a part cannot be read, does not go on where the one before it ends, or the first
            one does not begin with a run's first event; or `into` is there or cannot be written.
    """
    if into.exists():
        raise LogUnavailable(f"{into}: there is such a file already: give another name")
    with ChainedLog(parts) as log:
        reader = log.reader()
        for info in reader.runs():
            checkpoint = reader.checkpoint(info.run_id)
            if checkpoint is not None:
                raise LogUnavailable(
                    f"{parts[0]}: run {info.run_id} begins after seq {checkpoint.seq} here: "
                    f"give {checkpoint.archive} first"
                )
    part = into.with_name(f"{into.name}.part")
    part.unlink(missing_ok=True)
    with (
        translated(str(into)),
        closing(sqlite3.connect(f"file:{quote(str(part))}", uri=True, isolation_level=None)) as own,
    ):
        for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *CREATE):
            own.execute(statement)
        for path in parts:
            own.execute("ATTACH ? AS part", (f"file:{quote(str(path))}?mode=ro",))
            for run_id, after_seq, after_step in _begins(own):
                _copy(own, run_id, after_seq, after_step)
            if path == parts[-1]:
                for table in ("run_log", "run_end", "move", "move_edge", "request_ref"):
                    own.execute(f"INSERT INTO {table} SELECT * FROM part.{table}")  # noqa: S608  # fixed names
            own.execute("DETACH part")
    part.rename(into)


def _begins(own: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
    """(run, seq, step) after which each run begins in the part; what is before is left over."""
    ((version,),) = own.execute("PRAGMA part.user_version").fetchall()
    begins: dict[int, tuple[int, int]] = {}
    if version == ARCHIVED_VERSION:
        rows = own.execute("SELECT run_id, seq, step FROM part.checkpoint").fetchall()
        begins = {run_id: (seq, step) for run_id, seq, step in rows}
    for (run_id,) in own.execute("SELECT run_id FROM part.run_log ORDER BY run_id").fetchall():
        yield run_id, *begins.get(run_id, (0, -1))


def _copy(own: sqlite3.Connection, run_id: int, after_seq: int, after_step: int) -> None:
    base = run_id << RUN_SHIFT
    sql = "SELECT coalesce(max(key), 0) FROM part.event_log WHERE key BETWEEN ? AND ?"
    ((last,),) = own.execute(sql, (base, base + (1 << RUN_SHIFT) - 1)).fetchall()
    for after in range(base + after_seq, last, COPIED_ROWS):
        own.execute(
            "INSERT INTO event_log SELECT * FROM part.event_log WHERE key > ? AND key <= ?",
            (after, min(after + COPIED_ROWS, last)),
        )
    copy_numbered(own, "part", "step_log", "step", run_id, after=after_step)
