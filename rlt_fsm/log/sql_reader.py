"""Reading a log database: plain tuples in the order of the port's rows, in short transactions.

The driver's own cursor is used, since SQLAlchemy's rows halve the speed. Rows are fetched in
chunks, each in its own transaction: an open one would keep a writer from resetting its WAL. A log
only grows, so chunks still make one consistent prefix of a run.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Final, cast

from rlt_fsm.errors import LogUnavailable

from .column_reader import COLUMNS, decoded
from .port import (
    CHUNK_ROWS,
    Checkpoint,
    EdgeRow,
    EventColumns,
    EventRow,
    LogReader,
    MoveRow,
    RequestRow,
    RunInfo,
    StepRow,
)
from .schema import ARCHIVED_VERSION, RUN_SHIFT, SEQ_MASK
from .sql_errors import translated

_RUNS: Final = f"SELECT {', '.join(RunInfo._fields)} FROM run ORDER BY run_id"  # noqa: S608  # fixed names
_MOVES: Final = "SELECT * FROM move ORDER BY move_id"
_EDGES: Final = "SELECT move_id, machine, source, dest FROM move_edge ORDER BY move_id, ordinal"
_REQUESTS: Final = (
    "SELECT ref, request_id, generation FROM request_ref WHERE run_id = ? AND ref > ? ORDER BY ref"
)
_GENERATION: Final = (
    "SELECT coalesce(max(generation), 0) FROM request_ref WHERE run_id = ? AND request_id = ?"
)
_VERSION: Final = "PRAGMA user_version"
_CHECKPOINT: Final = """SELECT run_id, step, seq, digest, engine, audit, archive
FROM checkpoint WHERE run_id = ?"""
_BASE: Final = "SELECT step, seq FROM checkpoint WHERE run_id = ?"
_LAST_KEY: Final = "SELECT max(key) FROM event_log WHERE key BETWEEN ? AND ?"
_CELLS: Final = """SELECT key - ?, step, ticket, t_ns, ref, move, blocks, cause, reason,
    a, b, c, d, e, extra
FROM event_log WHERE key > ? AND key <= ?"""
_EVENTS: Final = f"{_CELLS} ORDER BY key LIMIT ?"
# No index serves this: it is one scan in SQLite, ten times as fast as handing out every row.
_SELECTED: Final = f"""{_CELLS}
AND (ref IN (SELECT value FROM json_each(?)) OR move IN (SELECT value FROM json_each(?)))
ORDER BY key LIMIT ?"""  # noqa: S608  # fixed text
_STEPS: Final = """SELECT step, first_seq, last_seq, ticket, waiting, slots_held, blocks_free,
    blocks_prefix_only, host_blocks, digest
FROM step_log WHERE run_id = ? AND step > ? ORDER BY step LIMIT ?"""
_STEP_AT: Final = """SELECT step, first_seq, last_seq, ticket, waiting, slots_held, blocks_free,
    blocks_prefix_only, host_blocks, digest
FROM step_log WHERE run_id = ? AND step <= ? ORDER BY step DESC LIMIT 1"""


class SqlReader(LogReader):
    """Reads the runs of one database through a connection that `connect` gives."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect

    def absent(self) -> None:
        """The log is our own."""
        return

    def runs(self) -> list[RunInfo]:
        """Every run, by number; the `run` view."""
        return [RunInfo._make(row) for row in self._rows(_RUNS)]

    def moves(self, run_id: int) -> list[MoveRow]:  # noqa: ARG002  # one table for all
        """Every move of the log, by number: what the numbers in the events mean."""
        return [MoveRow._make(row) for row in self._rows(_MOVES)]

    def edges(self, run_id: int) -> list[EdgeRow]:  # noqa: ARG002  # one table for all
        """What `transition` shows for each move, by number."""
        return [EdgeRow._make(row) for row in self._rows(_EDGES)]

    def requests(self, run_id: int, after_ref: int = -1) -> list[RequestRow]:
        """Every request of the run after a ref, refused ones too."""
        return [RequestRow._make(row) for row in self._rows(_REQUESTS, run_id, after_ref)]

    def generation(self, run_id: int, request_id: str) -> int:
        """The newest generation of an id; 0 where it was never used."""
        ((newest,),) = self._rows(_GENERATION, run_id, request_id)
        return cast("int", newest)

    def events(self, run_id: int, after_seq: int = 0) -> Iterator[EventRow]:
        """The run's events after `after_seq`, up to the last one committed when this is called."""
        after_seq = max(after_seq, self._base(run_id)[1])
        return chain.from_iterable(self._chunks(_EVENTS, run_id, after_seq, self._last_seq(run_id)))

    def columns(self, run_id: int, after_seq: int = 0) -> Iterator[EventColumns]:
        """The same column by column, put together inside SQLite, which has them ready sooner."""
        after_seq = max(after_seq, self._base(run_id)[1])
        return self._column_chunks(run_id, after_seq, self._last_seq(run_id))

    def _column_chunks(self, run_id: int, after_seq: int, last_seq: int) -> Iterator[EventColumns]:
        base = run_id << RUN_SHIFT
        while after_seq < last_seq:
            bounds = (base, base + after_seq, base + last_seq, CHUNK_ROWS)
            chunk = decoded(self._packed(*bounds))
            if chunk is None:  # something that JSON does not hold exactly
                rows = self._rows(_EVENTS, *bounds)
                chunk = [list(column) for column in zip(*rows, strict=True)]
            if not chunk or not chunk[0]:
                return
            self._require_no_gap(run_id, after_seq, chunk[0][0])
            yield chunk
            after_seq = chunk[0][-1]

    def _packed(self, *bounds: int) -> tuple[object, ...] | None:
        try:
            ((row),) = self._connect().execute(COLUMNS, bounds).fetchall()
        except sqlite3.DatabaseError:  # a BLOB; if it is anything else, rows will say so
            return None
        return cast("tuple[object, ...]", row)

    def first_after(self, run_id: int, seq: int) -> EventRow | None:
        """The first event after `seq`; None at the end."""
        base = run_id << RUN_SHIFT
        seq = max(seq, self._base(run_id)[1])
        rows = self._rows(_EVENTS, base, base + seq, base + SEQ_MASK, 1)
        return cast("EventRow", rows[0]) if rows else None

    def select(
        self,
        run_id: int,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[EventRow]:
        """The events with one of these refs or moves, after one seq and up to another."""
        last_seq = self._last_seq(run_id)
        after_seq = max(after_seq, self._base(run_id)[1])
        until_seq = last_seq if until_seq is None else min(until_seq, last_seq)
        wanted = (json.dumps(sorted(refs)), json.dumps(sorted(moves)))
        return chain.from_iterable(self._chunks(_SELECTED, run_id, after_seq, until_seq, *wanted))

    def _last_seq(self, run_id: int) -> int:
        base = run_id << RUN_SHIFT
        ((last_key,),) = self._rows(_LAST_KEY, base, base + SEQ_MASK)
        return 0 if last_key is None else cast("int", last_key) - base

    def _chunks(
        self, sql: str, run_id: int, after_seq: int, last_seq: int, *wanted: str
    ) -> Iterator[list[EventRow]]:
        base = run_id << RUN_SHIFT
        while after_seq < last_seq:
            bounds = (base, base + after_seq, base + last_seq)
            rows = self._rows(sql, *bounds, *wanted, CHUNK_ROWS)
            if not rows:
                return
            if not wanted:
                self._require_no_gap(run_id, after_seq, cast("int", rows[0][0]))
            yield cast("list[EventRow]", rows)
            after_seq = cast("int", rows[-1][0])

    def steps(self, run_id: int, after_step: int = -1) -> Iterator[StepRow]:
        """The run's steps after `after_step`, in order."""
        after_step = max(after_step, self._base(run_id)[0])
        while rows := self._rows(_STEPS, run_id, after_step, CHUNK_ROWS):
            yield from cast("list[StepRow]", rows)
            after_step = cast("int", rows[-1][0])

    def step_at(self, run_id: int, step: int) -> StepRow | None:
        """The run's last step up to number `step`."""
        rows = self._rows(_STEP_AT, run_id, step)
        is_here = rows and cast("int", rows[0][0]) > self._base(run_id)[0]
        return StepRow._make(rows[0]) if is_here else None

    def checkpoint(self, run_id: int) -> Checkpoint | None:
        """Where the run begins in this file."""
        if not self._has_checkpoints():
            return None
        rows = self._rows(_CHECKPOINT, run_id)
        return Checkpoint._make(rows[0]) if rows else None

    def _has_checkpoints(self) -> bool:
        ((version,),) = self._rows(_VERSION)
        return version == ARCHIVED_VERSION

    def _base(self, run_id: int) -> tuple[int, int]:
        """The step and the seq after which the run begins here; rows up to them are leftovers."""
        rows = self._rows(_BASE, run_id) if self._has_checkpoints() else []
        return cast("tuple[int, int]", rows[0]) if rows else (-1, 0)

    def _require_no_gap(self, run_id: int, after_seq: int, first_seq: int) -> None:
        """A gap is the auditor's to judge, unless it came while the rows were being read."""
        if first_seq != after_seq + 1 and self._base(run_id)[1] > after_seq:
            raise LogUnavailable(
                f"{self._name}: events of run {run_id} were archived while they were read: "
                "read it again"
            )

    def _rows(self, sql: str, *parameters: int | str) -> list[tuple[object, ...]]:
        with translated(self._name):
            return self._connect().execute(sql, parameters).fetchall()
