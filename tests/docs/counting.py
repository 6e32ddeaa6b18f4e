"""The answers of the page's queries counted from a run's raw events, without SQL and views."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from rlt_fsm import EventLog
from rlt_fsm.log.port import MoveRow, RequestRow, StepRow

Answer = list[tuple[Any, ...]]


class Event(NamedTuple):
    seq: int
    step: int
    ticket: int | None
    request: RequestRow | None
    blocks: int | None
    reason: str | None
    columns: tuple[Any, ...]
    data: dict[str, Any]
    move: MoveRow

    @property
    def name(self) -> tuple[str, int]:
        assert self.request is not None
        return self.request.request_id, self.request.generation


class Run:
    """A run's events, read without its views."""

    def __init__(self, path: Path) -> None:
        with EventLog.open_for_reading(path) as log:
            reader = log.reader()
            moves = {row.move: row for row in reader.moves(1)}
            names = {row.ref: row for row in reader.requests(1)}
            self.steps = [StepRow(*row) for row in reader.steps(1)]
            self.events = [
                Event(
                    row[0], row[1], row[2], names.get(row[4]), row[6], row[8], tuple(row[9:14]),
                    json.loads(row[14] or "{}"), moves[row[5]],
                )
                for row in reader.events(1)
            ]  # fmt: skip

    def of(self, *triggers: str) -> list[Event]:
        return [event for event in self.events if event.move.trigger in triggers]

    def by_request(self, events: list[Event] | None = None) -> dict[tuple[str, int], list[Event]]:
        """In the order of arrival."""
        found: dict[tuple[str, int], list[Event]] = defaultdict(list)
        for event in self.events if events is None else events:
            if event.request is not None and event.name not in self.refused:
                found[event.name].append(event)
        return found

    @property
    def refused(self) -> set[tuple[str, int]]:
        return {event.name for event in self.of("refuse")}

    def tickets(self) -> Iterator[tuple[Event, list[Event]]]:
        """Every batch: its submission, its rows."""
        rows: dict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.move.trigger == "select":
                assert event.ticket is not None
                rows[event.ticket].append(event)
            elif event.move.trigger == "submit_batch":
                assert event.ticket is not None
                yield event, rows[event.ticket]


def rounded_mean(numbers: Iterable[int]) -> float:
    """To hundredths, halves upwards, as SQLite's round() does."""
    return math.floor(mean(numbers) * 100 + 0.5) / 100


def waits_for_admission(run: Run) -> Answer:
    waited = []
    for name, events in run.by_request().items():
        active = [event.step for event in events if event.move.status_to == "ACTIVE"]
        if active:
            waited.append((*name, active[0] - events[0].step))
    return sorted(waited, key=lambda row: -row[2])[:3]


def first_outputs(run: Run) -> Answer:
    steps = sorted(
        next(e.step for e in events if e.move.trigger == "output") - events[0].step
        for events in run.by_request().values()
        if any(e.move.trigger == "output" for e in events)
    )
    return [(p, steps[math.ceil(len(steps) * p / 100) - 1]) for p in (50, 90, 99)]


def gaps_between_outputs(run: Run) -> Answer:
    gaps = [
        (*name, max(b.step - a.step for a, b in pairwise(events)))
        for name, events in run.by_request(run.of("output")).items()
        if len(events) > 1
    ]
    return sorted(gaps, key=lambda row: (-row[2], row[0], row[1]))[:3]


def ends(run: Run) -> Answer:
    ended = []
    for name, events in run.by_request().items():
        last = [e for e in events if e.move.status_to == "FINISHED"]
        if last:
            why = last[0].data.get("finish_reason", last[0].move.trigger)
            ended.append((*name, last[0].step - events[0].step, why))
    return sorted(ended, key=lambda row: -row[2])[:3]


def waits_for_a_batch(run: Run) -> Answer:
    waited = defaultdict(list)
    for events in run.by_request().values():
        moved = [e for e in events if e.move.work_to is not None]
        for begin, end in pairwise(moved):
            state, _, key = begin.move.work_to.partition(":")
            if state == "QUEUED":
                waited[key].append(end.step - begin.step)
    rows = [(key, len(steps), sum(steps), max(steps)) for key, steps in waited.items()]
    return sorted(rows, key=lambda row: (-row[3], -row[2], row[0]))


PREEMPTIONS = ("yield", "offload", "offload_resident", "rewind")


def preemptions(run: Run) -> Answer:
    counts = Counter((e.data["for"], e.move.trigger) for e in run.of(*PREEMPTIONS))
    rows = [(*key, count) for key, count in counts.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0] or "", row[1]))


def blocks_to_the_host(run: Run) -> Answer:
    moved = run.of("offload", "offload_resident")
    return [(len(moved), sum(event.data["host_blocks"] for event in moved))]


def computed_twice(run: Run) -> Answer:
    rows = [event.columns for event in run.of("select")]
    return [(sum(count for _, _, count, _, replay in rows if replay),)]


def batches_by_work(run: Run) -> Answer:
    found = defaultdict(list)
    for _, rows in run.tickets():
        works = {event.move.work_from.partition(":")[2] for event in rows}
        tokens = sum(event.columns[2] for event in rows)
        found["+".join(sorted(works))].append((len(rows), tokens))
    rows = [
        (works, len(of), rounded_mean(rows for rows, _ in of), sum(tokens for _, tokens in of))
        for works, of in found.items()
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def batches_by_reason(run: Run) -> Answer:
    counts = Counter(event.reason for event in run.of("submit_batch"))
    return sorted(counts.items(), key=lambda row: (-row[1], row[0]))


def tokens_in_ten_steps(run: Run) -> Answer:
    tokens: Counter[int] = Counter()
    for submit, rows in run.tickets():
        tokens[submit.step // 10 * 10] += sum(event.columns[2] for event in rows)
    return sorted(tokens.items())[:4]


def in_flight(run: Run) -> Answer:
    flying, counts = 0, []
    for event in run.of("submit_batch", "retire_batch"):
        flying += 1 if event.move.trigger == "submit_batch" else -1
        if event.move.trigger == "submit_batch":
            counts.append(flying)
    return [(max(counts), rounded_mean(counts))]


def rows_for(run: Run) -> Answer:
    works = (event.move.work_from.partition(":")[2] for event in run.of("select"))
    counts = Counter("prompt" if work.startswith("PROMPT") else "output" for work in works)
    return sorted(counts.items())


def depths(run: Run) -> Answer:
    return sorted(Counter(event.columns[2] for event in run.of("output")).items())


def mean_depths(run: Run) -> Answer:
    rows = [
        (*name, rounded_mean(e.columns[2] for e in events), len(events))
        for name, events in run.by_request(run.of("output")).items()
    ]
    return sorted(rows, key=lambda row: (row[2], row[0], row[1]))[:3]


def occupancy(run: Run) -> Answer:
    """Slots counted from the moves of the slot machine."""
    held, counts, events = 0, Counter(), iter(run.events)
    event = next(events, None)
    for step in run.steps:
        while event is not None and event.seq <= step.last_seq:
            held += (event.move.slot_to == "HELD") - (event.move.slot_to == "FREE")
            event = next(events, None)
        counts[held] += 1
    return sorted(counts.items())


def block_steps(run: Run) -> Answer:
    rows = []
    for name, events in run.by_request().items():
        held = sum(a.blocks * (b.step - a.step) for a, b in pairwise(events))
        rows.append((*name, max(e.blocks for e in events), held if len(events) > 1 else None))
    refused = [(*name, 0, None) for name in run.refused]
    return sorted(rows + refused, key=lambda row: (row[3] is None, -(row[3] or 0), row[:2]))[:3]


def refusals(run: Run) -> Answer:
    reasons = defaultdict(list)
    for event in run.of("refuse"):
        reasons[event.reason.split(" ")[0]].append(event.reason)
    rows = [(code, len(found), max(found)) for code, found in reasons.items()]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


COUNTED: dict[str, Callable[[Run], Answer]] = {
    "Who waited longest to be admitted": waits_for_admission,
    "Steps from arrival to first output, as percentiles": first_outputs,
    "Steps between two outputs of a request, at most": gaps_between_outputs,
    "Steps from arrival to end, and why it ended": ends,
    "Starved keys: how long ready work waited for a batch, by its key": waits_for_a_batch,
    "Preemptions by whom they were for": preemptions,
    "Blocks that moved to the host": blocks_to_the_host,
    "Tokens that were computed twice, after a rewind": computed_twice,
    "Batches by what they ran": batches_by_work,
    "Batches by why their work went first": batches_by_reason,
    "Tokens computed in each ten steps": tokens_in_ten_steps,
    "Tickets in flight, at most and on average, counted whenever one was submitted": in_flight,
    "Rows for prompts and rows for outputs": rows_for,
    "Tokens that left the loop at each depth": depths,
    "Mean exit depth of each request, the earliest leavers first": mean_depths,
    "Slot occupancy: how many steps ended with how many slots held": occupancy,
    "Blocks held longest: a request's blocks times the steps that it held them": block_steps,
    "Refusals by reason": refusals,
}
