"""Puts the parts of a log together again: one file with every run from its first event on."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rlt_fsm.errors import LogUnavailable

from .archiving import COPIED_ROWS, copy_numbered
from .chained import ChainedLog
from .new_file import whole_new_file
from .schema import ARCHIVED_VERSION, CREATE, RUN_SHIFT, SEQ_MASK
from .sql_errors import translated


def join(parts: Sequence[str | Path], into: Path) -> None:
    """Write the log that the parts were, its archives given first, the oldest first.

    The last part may be written meanwhile: it is copied as it was at one moment.

    Raises:
        LogError: a part cannot be read, does not go on where the one before it ends, or the first
            one does not begin with a run's first event; or `into` is there or cannot be written.
    """
    with whole_new_file(into) as part:
        _require_whole(parts)
        with (
            translated(str(into)),
            closing(
                sqlite3.connect(f"file:{quote(str(part))}", uri=True, isolation_level=None)
            ) as own,
        ):
            for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *CREATE):
                own.execute(statement)
            for number, path in enumerate(parts, start=1):
                own.execute("ATTACH ? AS part", (f"file:{quote(str(path))}?mode=ro",))
                _copy(own, is_last=number == len(parts))
                own.execute("DETACH part")
        _require_whole(parts)  # nothing was archived meanwhile


def _require_whole(parts: Sequence[str | Path]) -> None:
    with ChainedLog(parts) as log:
        reader = log.reader()
        for info in reader.runs():
            checkpoint = reader.checkpoint(info.run_id)
            if checkpoint is not None:
                raise LogUnavailable(
                    f"{log.name}: run {info.run_id} begins after seq {checkpoint.seq} here: "
                    f"give {checkpoint.archive} first"
                )


class _Span(NamedTuple):
    """What one part holds of a run: rows after the first three numbers, up to the last three."""

    run_id: int
    after_seq: int
    after_step: int
    last_key: int
    last_step: int
    last_ref: int


def _copy(own: sqlite3.Connection, *, is_last: bool) -> None:
    """Copy a part as it is now: rows are only added to it, so those of now are found later too."""
    own.execute("BEGIN")  # everything is read at one moment
    spans = [_span(own, *begin) for begin in _begins(own)]
    if is_last:
        for table in ("run_log", "run_end", "move", "move_edge"):
            own.execute(f"INSERT INTO {table} SELECT * FROM part.{table}")  # noqa: S608  # fixed names
    own.execute("COMMIT")
    for span in spans:
        _copy_span(own, span)
        if is_last:
            copy_numbered(
                own, "part", "request_ref", "ref", span.run_id, after=-1, until=span.last_ref
            )


def _span(own: sqlite3.Connection, run_id: int, after_seq: int, after_step: int) -> _Span:
    base = run_id << RUN_SHIFT
    sql = """SELECT
        (SELECT coalesce(max(key), 0) FROM part.event_log WHERE key BETWEEN ? AND ?),
        (SELECT coalesce(max(step), -1) FROM part.step_log WHERE run_id = ?),
        (SELECT coalesce(max(ref), -1) FROM part.request_ref WHERE run_id = ?)"""
    ((key, step, ref),) = own.execute(sql, (base, base + SEQ_MASK, run_id, run_id)).fetchall()
    return _Span(run_id, after_seq, after_step, key, step, ref)


def _begins(own: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
    """(run, seq, step) after which each run begins in the part; what is before is left over."""
    ((version,),) = own.execute("PRAGMA part.user_version").fetchall()
    begins: dict[int, tuple[int, int]] = {}
    if version == ARCHIVED_VERSION:
        rows = own.execute("SELECT run_id, seq, step FROM part.checkpoint").fetchall()
        begins = {run_id: (seq, step) for run_id, seq, step in rows}
    for (run_id,) in own.execute("SELECT run_id FROM part.run_log ORDER BY run_id").fetchall():
        yield run_id, *begins.get(run_id, (0, -1))


def _copy_span(own: sqlite3.Connection, span: _Span) -> None:
    first = (span.run_id << RUN_SHIFT) + span.after_seq
    for after in range(first, span.last_key, COPIED_ROWS):
        own.execute(
            "INSERT INTO event_log SELECT * FROM part.event_log WHERE key > ? AND key <= ?",
            (after, min(after + COPIED_ROWS, span.last_key)),
        )
    after, until = span.after_step, span.last_step
    copy_numbered(own, "part", "step_log", "step", span.run_id, after=after, until=until)
