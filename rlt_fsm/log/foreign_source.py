"""Queries to a database with public names, and what `event.data` leaves to other names.

Rows as they stand: what they mean is `foreign_rows`' and the reader's.
"""
# ruff: noqa: S608  # only names of the contract go into the texts

import json
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from . import foreign_rows as public
from .port import EventCells
from .sql_errors import translated

Columns = Mapping[str, frozenset[str]]  # of each public name that the database has
FETCH_ROWS: Final = 2048
LOGPROB: Final = 12  # the column of an output's log-probability

_BATCH_ROW: Final = ("row", "token_start", "token_count", "depth", "replay")
_BATCH: Final = ("ticket", "operation", "works", "rows", "tokens")


class Source:
    """A connection, and the columns that are there to be asked for."""

    def __init__(self, name: str, connection: sqlite3.Connection, columns: Columns) -> None:
        self._name = name
        self._connection = connection
        self.columns = columns

    def column(self, view: str, name: str) -> str:
        """The column's name in a query; NULL where it is not there."""
        return f'"{name}"' if name in self.columns.get(view, ()) else "NULL"

    def stream(self, text: str, *parameters: int | str) -> Iterator[tuple[Any, ...]]:
        """Rows as they are wanted: a table need have no index that would find the next ones."""
        with translated(self._name):
            cursor = self._connection.execute(text, parameters)
            while rows := cursor.fetchmany(FETCH_ROWS):
                yield from rows

    def rows(self, text: str, *parameters: int | str) -> list[tuple[Any, ...]]:
        """All rows."""
        with translated(self._name):
            return self._connection.execute(text, parameters).fetchall()

    def batch_rows(self, run_id: int, from_ticket: int) -> Iterator[tuple[Any, ...]]:
        """(ticket, request id, generation, then the columns of `batch_row`), in order."""
        if "batch_row" not in self.columns:
            return iter(())
        names = ", ".join(self.column("batch_row", name) for name in _BATCH_ROW)
        return self.stream(
            f"SELECT ticket, request_id, coalesce(generation, 1), {names} FROM batch_row "
            'WHERE run_id = ? AND ticket >= ? ORDER BY ticket, "row"', run_id, from_ticket,
        )  # fmt: skip

    def logprobs(self, run_id: int, from_seq: int) -> Iterator[tuple[Any, ...]]:
        """(seq, log-probability) of the outputs from a seq on, in order."""
        if not {"seq", "logprob"} <= self.columns.get("output", frozenset()):
            return iter(())
        return self.stream(
            "SELECT seq, logprob FROM output WHERE run_id = ? AND seq >= ? ORDER BY seq",
            run_id,
            from_seq,
        )

    def batches(self, run_id: int) -> dict[int, str]:
        """What `submit_batch` would tell, as JSON, by ticket."""
        if "batch" not in self.columns:
            return {}
        names = ", ".join(self.column("batch", name) for name in _BATCH)
        told = {}
        for ticket, operation, works, rows, tokens in self.rows(
            f"SELECT {names} FROM batch WHERE run_id = ?", run_id
        ):
            keys = [] if works is None else str(works).split("+")
            batch = {"operation": operation, "works": keys, "rows": rows, "tokens": tokens}
            told[ticket] = json.dumps(batch)
        return told


class Elsewhere:
    """The data of events that carry none, one pass over `batch_row` for one over the events."""

    def __init__(self, source: Source, run_id: int) -> None:
        self._source = source
        self._run_id = run_id
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._next: tuple[Any, ...] | None = None
        self._ticket: int | None = None
        self._of_ticket: dict[tuple[str, int], deque[tuple[Any, ...]]] = {}
        self._batches: dict[int, str] | None = None
        self._logprobs: Iterator[tuple[Any, ...]] | None = None
        self._logprob: tuple[Any, ...] | None = None

    def logprob_of(self, event: EventCells) -> object:
        """As `output` has it, else as the event tells it."""
        seq = event[0]
        if self._logprobs is None:
            self._logprobs = self._source.logprobs(self._run_id, seq)
            self._logprob = next(self._logprobs, None)
        while self._logprob is not None and self._logprob[0] < seq:
            self._logprob = next(self._logprobs, None)
        found = self._logprob is not None and self._logprob[0] == seq
        return self._logprob[1] if found and self._logprob is not None else event[LOGPROB]

    def data_of(self, row: public.PublicRow) -> str | None:
        """What `batch_row` or `batch` tells, as JSON, of a `select` or `submit_batch`."""
        ticket, trigger = row[public.TICKET], row[public.TRIGGER]
        if not isinstance(ticket, int):
            return None
        if trigger == "submit_batch":
            if self._batches is None:
                self._batches = self._source.batches(self._run_id)
            return self._batches.get(ticket)
        return self._row(ticket, row) if trigger == "select" else None

    def _row(self, ticket: int, row: public.PublicRow) -> str | None:
        if ticket != self._ticket:
            self._go_to(ticket)
        request_id, generation = row[public.REQUEST]
        left = self._of_ticket.get((request_id, generation or 1))
        if not left:
            return None
        return json.dumps(dict(zip(_BATCH_ROW, left.popleft(), strict=True)))

    def _go_to(self, ticket: int) -> None:
        if self._rows is None:
            self._rows = self._source.batch_rows(self._run_id, ticket)
            self._next = next(self._rows, None)
        self._ticket, self._of_ticket = ticket, {}
        while self._next is not None and self._next[0] <= ticket:
            if self._next[0] == ticket:
                key = (self._next[1], self._next[2])
                self._of_ticket.setdefault(key, deque()).append(self._next[3:])
            self._next = next(self._rows, None)
