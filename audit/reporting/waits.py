"""How long requests waited: to their first output, between outputs, to be admitted; percentiles.

Steps come from the events' steps, milliseconds from `t_ns`, which a log may not have.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from audit.reader import MOVE, REF, STEP, A, Event, RunLog
from rlt_fsm.states import RequestStatus

PERCENTILES: Final = (50, 90, 95, 99, 100)
ARRIVALS: Final = frozenset({"submit", "submit_remote"})
NS_PER_MS: Final = 1e6
WAITING: Final = RequestStatus.WAITING.value


class Percentiles(msgspec.Struct, frozen=True):
    """Of `count` values the mean and, by nearest rank, PERCENTILES."""

    count: int
    mean: float
    ranks: list[float]


class Wait(msgspec.Struct, frozen=True):
    """One kind of wait; `ms` is None where no time is told."""

    name: str
    what: str
    steps: Percentiles | None
    ms: Percentiles | None


class _Spells:
    """Waits of one kind as they end."""

    def __init__(self) -> None:
        self.steps: Counter[int] = Counter()
        self.ns: list[int] = []

    def add(self, since: Event, until: Event) -> None:
        self.steps[until[STEP] - since[STEP]] += 1
        self.ns.append((until.t_ns or 0) - (since.t_ns or 0))

    def told(self, name: str, what: str) -> Wait:
        milliseconds = Counter(ns / NS_PER_MS for ns in self.ns) if any(self.ns) else Counter()
        return Wait(name, what, percentiles(self.steps), percentiles(milliseconds))


def waits(run: RunLog, until_seq: int, idle_steps: Counter[int]) -> list[Wait]:
    """Every kind of wait up to an event; `idle_steps` are those between having work and a batch."""
    first, between, queued = _Spells(), _Spells(), _Spells()
    submitted: dict[int, Event] = {}
    last_output: dict[int, Event] = {}
    waiting: dict[int, Event] = {}
    for event in map(Event._make, run.select(moves=_telling(run), until_seq=until_seq)):
        move, ref = run.moves[event[MOVE]], event[REF]
        if move.trigger in ARRIVALS:
            submitted[ref] = event
        if move.trigger == "output":
            since = last_output.get(ref) if event[A] else submitted.get(ref)
            if since is not None:
                (between if event[A] else first).add(since, event)
            last_output[ref] = event
        elif move.status is not None and move.status[1] == WAITING:
            waiting[ref] = event
        elif (since := waiting.pop(ref, None)) is not None and move.trigger != "abort":
            queued.add(since, event)
    return [
        first.told("to the first output", "from submit to output 0"),
        between.told("between outputs", "from one output of a request to its next"),
        queued.told("to be admitted", "each time that it was WAITING, until it got a slot"),
        Wait(
            "to be in a batch", "each time that its work was QUEUED: steps that went by without it",
            percentiles(idle_steps), None,
        ),
    ]  # fmt: skip


def _telling(run: RunLog) -> list[int]:
    """The moves that begin or end a wait."""
    return [
        number
        for number, move in run.moves.items()
        if move.trigger == "output" or (move.status is not None and WAITING in move.status)
    ]


def percentiles(values: Counter[int] | Counter[float]) -> Percentiles | None:
    """Of values and how often each came; None of none."""
    count = values.total()
    if not count:
        return None
    ordered = sorted(values.items())
    total = sum(value * times for value, times in ordered)
    return Percentiles(count, total / count, _ranks(ordered, count))


def _ranks(ordered: Sequence[tuple[float, int]], count: int) -> list[float]:
    found: list[float] = []
    seen = 0
    for value, times in ordered:
        seen += times
        while len(found) < len(PERCENTILES) and seen * 100 >= PERCENTILES[len(found)] * count:
            found.append(value)
    return found
