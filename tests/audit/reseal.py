"""Corrupts a log file's private tables and seals it again, so that S13 hides nothing.

A test edits `events`, `steps`, `requests` and the moves as it likes; `seal` renumbers seqs (and
the causes that follow them), recounts the steps' rows and recomputes the digest chain. It shares
nothing with the auditor.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

from rlt_fsm.log.digest import FIRST_DIGEST, step_digest
from rlt_fsm.log.port import EventRow

RUN = 1
BASE = RUN << 40


@dataclass(eq=False)
class Event:
    """One row of the event table, in the order of the port."""

    seq: int
    step: int
    ticket: int | None
    t_ns: int
    ref: int | None
    move: int
    blocks: int | None
    cause: int | None
    reason: str | None
    a: int | None
    b: int | None
    c: int | None
    d: float | int | None
    e: int | None
    extra: str | None

    @property
    def data(self) -> dict:
        """The JSON of `extra`."""
        return json.loads(self.extra or "{}")

    def tell(self, **changes: object) -> None:
        """Change fields of the JSON."""
        self.extra = json.dumps({**self.data, **changes})


@dataclass(eq=False)
class Step:
    """One row of the step table."""

    step: int
    first_seq: int
    last_seq: int
    ticket: int | None
    waiting: int
    slots_held: int
    blocks_free: int
    blocks_prefix_only: int
    host_blocks: int
    digest: bytes


class Tampered:
    """A log file with one run, open to be corrupted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path)
        self.events = [
            Event(row[0] - BASE, *row[1:])
            for row in self._db.execute("SELECT * FROM event_log ORDER BY key")
        ]
        self.steps = [
            Step(*row[1:]) for row in self._db.execute("SELECT * FROM step_log ORDER BY step")
        ]
        self.moves = {
            row[0]: list(row[1:]) for row in self._db.execute("SELECT * FROM move ORDER BY move_id")
        }
        self.edges = self._db.execute("SELECT * FROM move_edge").fetchall()
        self.requests = [
            list(row[1:]) for row in self._db.execute("SELECT * FROM request_ref ORDER BY ref")
        ]
        ((config, model),) = self._db.execute("SELECT config, model FROM run_log").fetchall()
        self.config, self.model = json.loads(config), json.loads(model)

    # ---- finding rows ------------------------------------------------------------------------

    def trigger(self, event: Event) -> str:
        return self.moves[event.move][0]

    def work(self, event: Event) -> tuple[str | None, str | None]:
        """Where the event moves work from and to."""
        return tuple(self.moves[event.move][3:5])

    def all(self, trigger: str, where: Callable[[Event], bool] | None = None) -> list[Event]:
        found = [event for event in self.events if self.trigger(event) == trigger]
        if where is not None:
            found = [event for event in found if where(event)]
        assert found, f"the log has no such {trigger}"
        return found

    def selects(self, key: str) -> list[Event]:
        return self.all("select", lambda event: self.work(event)[1] == f"TAKEN:{key}")

    def enqueues(self, key: str) -> list[Event]:
        return self.all("enqueue", lambda event: self.work(event)[1] == f"QUEUED:{key}")

    def later(self, event: Event, trigger: str) -> Event:
        """The request's next event of a kind."""
        after = self.events[self.events.index(event) + 1 :]
        return next(e for e in after if e.ref == event.ref and self.trigger(e) == trigger)

    # ---- changing rows -----------------------------------------------------------------------

    def move(self, trigger: str, **edges: tuple[str | None, str | None]) -> int:
        """The number of a move, which the table need not have had; an edge is (source, dest)."""
        columns: list[str | None] = [trigger]
        for machine in ("status", "work", "slot", "kv"):
            columns += edges.get(machine, (None, None))
        for number, known in self.moves.items():
            if known == columns:
                return number
        number = max(self.moves) + 1
        self.moves[number] = columns
        self.edges += [
            (number, ordinal, machine, *edges[machine])
            for ordinal, machine in enumerate(("status", "work", "slot", "kv"))
            if machine in edges
        ]
        return number

    def configure(self, section: str, **fields: object) -> None:
        """Let the run have had another config, in its header and in what `open` tells."""
        self.config[section] |= fields
        (opened,) = self.all("open")
        opened.tell(config=self.config)

    def drop(self, *events: Event) -> None:
        self.events = [event for event in self.events if event not in events]

    def duplicate(self, event: Event) -> Event:
        return self.insert_after(event, replace(event))

    def insert_after(self, event: Event, new: Event) -> Event:
        self.events.insert(self.events.index(event) + 1, new)
        return new

    def swap(self, first: Event, second: Event) -> None:
        i, j = self.events.index(first), self.events.index(second)
        self.events[i], self.events[j] = self.events[j], self.events[i]

    # ---- sealing -----------------------------------------------------------------------------

    def seal(self) -> Path:
        """Renumber, recount, recompute, write back."""
        self._renumber()
        self._recount()
        self._chain()
        return self.write()

    def write(self) -> Path:
        """Write the rows back as they are."""
        db = self._db
        rows = [(BASE + event.seq, *astuple(event)[1:]) for event in self.events]
        for table, values in (
            ("event_log", rows),
            ("step_log", [(RUN, *astuple(step)) for step in self.steps]),
            ("move", [(number, *columns) for number, columns in self.moves.items()]),
            ("move_edge", self.edges),
            ("request_ref", [(RUN, *row) for row in self.requests]),
        ):
            db.execute(f"DELETE FROM {table}")
            if values:
                marks = ", ".join("?" * len(values[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        db.execute(
            "UPDATE run_log SET config = ?, model = ?",
            (json.dumps(self.config), json.dumps(self.model)),
        )
        db.commit()
        return self.path

    def _renumber(self) -> None:
        new = {event.seq: number for number, event in reversed([*enumerate(self.events, start=1)])}
        for number, event in enumerate(self.events, start=1):
            event.cause = new.get(event.cause)
            event.seq = number

    def _recount(self) -> None:
        """The steps' rows from the events, by the moves and the block lists alone."""
        by_step: dict[int, list[Event]] = {}
        for event in self.events:
            by_step.setdefault(event.step, []).append(event)
        rows = {step.step: step for step in self.steps}
        waiting: set[int | None] = set()
        slots: set[int | None] = set()
        blocks: dict[int | None, set[int]] = {}
        prefix: set[int] = set()
        host: dict[int | None, int] = {}
        for number, events in sorted(by_step.items()):
            step = rows.setdefault(number, replace(self.steps[0], step=number))
            step.first_seq, step.last_seq, step.ticket = events[0].seq, events[-1].seq, None
            for event in events:
                trigger, _, status_to, *_ = self.moves[event.move]
                slot_from, slot_to, kv_from, kv_to = self.moves[event.move][5:9]
                if trigger == "submit_batch":
                    step.ticket = event.ticket
                if self.moves[event.move][1:3] != [None, None]:
                    (waiting.add if status_to == "WAITING" else waiting.discard)(event.ref)
                if slot_from or slot_to:
                    (slots.add if slot_to == "HELD" else slots.discard)(event.ref)
                held = blocks.setdefault(event.ref, set())
                if trigger not in ("open", "submit", "refuse"):
                    data = event.data
                    held |= {*data.get("take", ()), *data.get("share", ())}
                    held -= {*data.get("drop", ())}
                    prefix |= {*data.get("publish", ())}
                    prefix -= {*data.get("evict", ())}
                if kv_to == "OFFLOADED":
                    host[event.ref] = data.get("host_blocks", 0)
                elif kv_from == "OFFLOADED":
                    host.pop(event.ref, None)
            step.waiting, step.slots_held = len(waiting), len(slots)
            pool = self.config["cache"]["num_blocks"]
            referenced = set().union(*blocks.values())
            step.blocks_free = pool - len(referenced | prefix)
            step.blocks_prefix_only = len(prefix - referenced)
            step.host_blocks = sum(host.values())
        self.steps = [rows[number] for number in sorted(by_step)]

    def _chain(self) -> None:
        names = {ref: f"{name}#{generation}" for ref, name, generation in self.requests}
        texts = {number: _text(columns) for number, columns in self.moves.items()}
        digest = FIRST_DIGEST
        for step in self.steps:
            events = [
                EventRow(**asdict(event))
                for event in self.events
                if step.first_seq <= event.seq <= step.last_seq
            ]
            digest = step.digest = step_digest(digest, step.step, events, names, texts)


def _text(columns: list[str | None]) -> str:
    edges = zip(columns[1::2], columns[2::2], strict=True)
    parts = ["" if a is None and b is None else f"{a or 'NULL'}>{b or 'NULL'}" for a, b in edges]
    return "|".join([columns[0] or "", *parts])
