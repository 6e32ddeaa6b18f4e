"""Reads the runs of any SQLite database that has tables or views of the public names.

Only `run`, `event` and `step` are read, `batch_row` and `batch` where `event.data` does not tell
what a `select` or a `submit_batch` is about, and `output` for log-probabilities, which JSON may
have rounded; the other views say nothing more. Requests and moves are numbered as they come.
"""
# ruff: noqa: S608  # only names of the contract go into the texts

import json
import sqlite3
from collections.abc import Collection, Iterator
from typing import Any, Final, cast

from rlt_fsm.errors import LogError

from . import foreign_rows as public
from .foreign_source import LOGPROB, Columns, Elsewhere, Source
from .move_rows import edges
from .port import EdgeRow, EventCells, LogReader, MoveRow, RequestRow, RunInfo, StepRow

END: Final = (1 << 62) - 1


class _Known:
    """The numbers given so far in one run, for everything up to a seq."""

    def __init__(self) -> None:
        self.upto = 0
        self.refs: dict[tuple[str, int], int] = {}
        self.moves: dict[tuple[str | None, ...], int] = {}


class ForeignReader(LogReader):
    """A reader on a connection that its log keeps; `columns` are those that it found there."""

    def __init__(self, name: str, connection: sqlite3.Connection, columns: Columns) -> None:
        self._name = name
        self._source = Source(name, connection, columns)
        self._columns = columns
        self._known: dict[int, _Known] = {}
        event = ", ".join(self._source.column("event", name) for name in public.EVENT_COLUMNS)
        self._events = f"SELECT {event} FROM event WHERE run_id = ? AND seq > ? AND seq <= ?"

    def absent(self) -> frozenset[str]:
        """What the log has no place for: a view, or `view.column`."""
        wanted = {
            "run": RunInfo._fields,
            "event": public.EVENT_COLUMNS,
            "step": StepRow._fields,
        }
        return frozenset(
            name if view not in self._columns else f"{view}.{name}"
            for view, names in wanted.items()
            for name in (names if view in self._columns else (view,))
            if name not in self._columns.get(view, ())
        )

    def runs(self) -> list[RunInfo]:
        """Every run, by number."""
        names = [self._source.column("run", name) for name in RunInfo._fields]
        rows = self._source.rows(f"SELECT {', '.join(names)} FROM run ORDER BY run_id")
        return [self._info(dict(zip(RunInfo._fields, row, strict=True))) for row in rows]

    def moves(self, run_id: int) -> list[MoveRow]:
        """The moves that this run has made so far, by number."""
        known = self._up_to_now(run_id)
        return [MoveRow(number, *move) for move, number in known.moves.items()]  # type: ignore[arg-type]  # a move's key is its columns

    def edges(self, run_id: int) -> list[EdgeRow]:
        """The machines of each move; `transition` is not read."""
        return [EdgeRow(row.move, *edge) for row in self.moves(run_id) for edge in edges(row)]

    def requests(self, run_id: int, after_ref: int = -1) -> list[RequestRow]:
        """Every request that this run has named so far, after a ref."""
        known = self._up_to_now(run_id)
        return [RequestRow(ref, *name) for name, ref in known.refs.items() if ref > after_ref]

    def events(self, run_id: int, after_seq: int = 0) -> Iterator[EventCells]:
        """The run's events after `after_seq`, up to the last one committed when this is called."""
        last_seq = self._up_to_now(run_id).upto
        return self._cells(f"{self._events} ORDER BY seq", run_id, after_seq, last_seq)

    def first_after(self, run_id: int, seq: int) -> EventCells | None:
        """The first event after `seq`; None at the end."""
        text = f"{self._events} ORDER BY seq LIMIT 1"
        return next(self._cells(text, run_id, seq, END), None)

    def select(
        self,
        run_id: int,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[EventCells]:
        """The events with one of these refs or moves, after one seq and up to another."""
        known = self._up_to_now(run_id)
        last_seq = known.upto if until_seq is None else min(until_seq, known.upto)
        names = [name for (name, _), ref in known.refs.items() if ref in set(refs)]
        triggers = [move[0] for move, number in known.moves.items() if number in set(moves)]
        text = (
            f"{self._events} AND (request_id IN (SELECT value FROM json_each(?)) "
            'OR "trigger" IN (SELECT value FROM json_each(?))) ORDER BY seq'
        )
        wanted = (json.dumps(names), json.dumps(triggers))
        rows = self._cells(text, run_id, after_seq, last_seq, *wanted)
        return (row for row in rows if row[4] in refs or row[5] in moves)

    def steps(self, run_id: int, after_step: int = -1) -> Iterator[StepRow]:
        """The run's steps after `after_step`; none where the log has no `step`."""
        if "step" in self._columns:
            where = "WHERE run_id = ? AND step > ? ORDER BY step"
            yield from (
                self._step(row)
                for row in self._source.stream(*self._of_step(where, run_id, after_step))
            )

    def step_at(self, run_id: int, step: int) -> StepRow | None:
        """The run's last step up to number `step`."""
        if "step" not in self._columns:
            return None
        where = "WHERE run_id = ? AND step <= ? ORDER BY step DESC LIMIT 1"
        return next(map(self._step, self._source.stream(*self._of_step(where, run_id, step))), None)

    # ---- rows --------------------------------------------------------------------------------

    def _info(self, row: dict[str, Any]) -> RunInfo:
        run_id = self._whole("run", "run_id", row["run_id"])
        last_seq, outcome = row["last_seq"], row["outcome"]
        if last_seq is None:
            ((last_seq,),) = self._source.rows(
                "SELECT max(seq) FROM event WHERE run_id = ?", run_id
            )
        if outcome is None:
            outcome = self._outcome(run_id)
        texts = {
            name: "" if row[name] is None else str(row[name])
            for name in ("started_at", "engine_version", "revision", "config", "model")
        }
        return RunInfo(
            **{**row, **texts, "outcome": outcome, "last_seq": last_seq or 0},
        )

    def _outcome(self, run_id: int) -> str:
        """As the run's own events tell it."""
        rows = self._source.rows(
            'SELECT "trigger", data FROM event WHERE run_id = ? '
            "AND \"trigger\" IN ('close', 'recover') ORDER BY seq DESC LIMIT 1",
            run_id,
        )
        if not rows:
            return "running"
        trigger, data = rows[0]
        if trigger == "recover":
            return "crashed"
        try:
            return str(json.loads(str(data))["outcome"])
        except (ValueError, LookupError, TypeError):
            return ""

    def _of_step(self, where: str, *parameters: int) -> tuple[Any, ...]:
        names = ", ".join(self._source.column("step", name) for name in StepRow._fields)
        return (f"SELECT {names} FROM step {where}", *parameters)

    def _step(self, row: tuple[Any, ...]) -> StepRow:
        for column, value in zip(StepRow._fields[:3], row[:3], strict=True):
            self._whole("step", column, value)
        digest = b"" if row[-1] is None else public.digest_of(row[-1])
        return StepRow._make((*row[:-1], digest))

    def _whole(self, view: str, column: str, value: object) -> int:
        if not isinstance(value, int):
            raise LogError(
                f"{self._name}: `{view}` has a row whose {column} is {value!r}: "
                "it must be a whole number"
            )
        return value

    def _up_to_now(self, run_id: int) -> _Known:
        """Number what the run has named since this was asked last."""
        known = self._known.setdefault(run_id, _Known())
        ((last_seq,),) = self._source.rows("SELECT max(seq) FROM event WHERE run_id = ?", run_id)
        if last_seq is None or last_seq == known.upto:
            return known
        for column in ("seq", "step"):
            where = f"FROM event WHERE run_id = ? AND typeof({column}) <> 'integer' LIMIT 1"
            for (value,) in self._source.rows(f"SELECT {column} {where}", run_id):
                self._whole("event", column, value)
        new = "FROM event WHERE run_id = ? AND seq > ?"
        names = self._source.rows(
            f"SELECT request_id, coalesce(generation, 1) {new} AND request_id IS NOT NULL "
            "GROUP BY 1, 2 ORDER BY min(seq)", run_id, known.upto,
        )  # fmt: skip
        for name in names:
            known.refs.setdefault(cast("tuple[str, int]", name), len(known.refs))
        states = ", ".join(public.STATE_COLUMNS)
        moves = self._source.rows(
            f'SELECT "trigger", {states} {new} AND "trigger" IS NOT NULL '
            f'GROUP BY "trigger", {states} ORDER BY min(seq)', run_id, known.upto,
        )  # fmt: skip
        for move in moves:
            known.moves.setdefault(move, len(known.moves))
        known.upto = self._whole("event", "seq", last_seq)
        return known

    def _cells(
        self, text: str, run_id: int, after_seq: int, last_seq: int, *wanted: str
    ) -> Iterator[EventCells]:
        known = self._up_to_now(run_id)
        elsewhere = Elsewhere(self._source, run_id)
        for row in self._source.stream(text, run_id, after_seq, last_seq, *wanted):
            request_id, generation = row[public.REQUEST]
            ref = None if request_id is None else known.refs.get((request_id, generation or 1))
            move = known.moves.get(row[public.MOVE], public.UNKNOWN_MOVE)
            data = row[public.DATA]
            if data is None:
                data = elsewhere.data_of(row)
            event = public.cells(row, ref, move, data)
            if row[public.TRIGGER] == "output" and event[LOGPROB] is not None:
                event = (*event[:LOGPROB], elsewhere.logprob_of(event), *event[LOGPROB + 1 :])
            yield event
