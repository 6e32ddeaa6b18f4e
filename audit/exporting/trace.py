"""A run as a trace for ui.perfetto.dev: what the engine, the runner and each request did when.

Three groups of lanes. `engine`: its steps, with what was held at the end of each as counters.
`runner`: the tickets from submission to completion, as many lanes as were in flight at once.
`requests`: one lane each, its status outside, its pending work inside, outputs, preemptions and
verdicts as marks; an arrow leads from each ticket to the requests that it has a row of. The log
tells of no streams inside a runner.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO, Final, TypeVar

import msgspec

from audit.facts import BatchData, FinishData, PreemptionData, decode
from audit.legality import Edge, Move
from audit.reader import EXTRA, MOVE, REASON, REF, SEQ, STEP, TICKET, A, B, C, Event, RunLog
from audit.request_names import name_of
from rlt_fsm.errors import LogError
from rlt_fsm.log.port import RequestRow, StepRow
from rlt_fsm.machines import NULL

from .trace_file import Lane, TraceFile

T = TypeVar("T")

T_NS: Final = 3
STEP_NS: Final = 1_000_000  # a step's length where steps are the time: one millisecond

ENGINE, RUNNER, REQUESTS = 1, 2, 3
STEPS: Final = Lane(ENGINE, 1)
FIRST_TICKET_LANE: Final = 2
FIRST_REQUEST_LANE: Final = 1000  # far above the tickets that can be in flight

# Counters by (name, unit), and the column of a step that they show.
COUNTERS: Final = {
    ("waiting", "requests"): "waiting",
    ("held", "slots"): "slots_held",
    ("free", "blocks"): "blocks_free",
    ("on the host", "blocks"): "host_blocks",
}

IDLE: Final = "IDLE"
PREEMPTIONS: Final = frozenset({"yield", "offload", "offload_resident", "rewind"})
MARKS: Final = frozenset({"verdict", "drop", "resume", "abort"})


class TimeAxis(StrEnum):
    """What the trace's time is."""

    CLOCK = "clock"  # nanoseconds since the run began
    STEPS = "steps"  # a millisecond each: the same for every run that did the same


def export_trace(
    run: RunLog,
    out: BinaryIO,
    *,
    axis: TimeAxis = TimeAxis.CLOCK,
    told: Callable[[int], None] = lambda _events: None,
) -> int:
    """Write a run as a trace; how many events of the log it shows. `told` is called with that.

    Raises:
        LogError: the log tells no times; steps can be the time instead.
    """
    if axis == TimeAxis.CLOCK and "event.t_ns" in run.absent:
        raise LogError(f"run {run.info.run_id} tells no times: take --time steps")
    trace = TraceFile(out, {"run_id": run.info.run_id, "time": axis.value})
    lanes = _Lanes(run, trace)
    steps = _Rows(run.steps())
    done = 0
    for number, group in groupby(run.events_after(0), key=itemgetter(STEP)):
        events = list(group)
        lanes.begin_step(number, _times(events, number, axis), events)
        lanes.end_step(steps.of(number))
        done += len(events)
        told(done)
    trace.close()
    return done


def _times(events: list[Event], step: int, axis: TimeAxis) -> list[int]:
    """When each event of a step happened, in nanoseconds."""
    if axis == TimeAxis.CLOCK:
        return [event[T_NS] or 0 for event in events]
    return [step * STEP_NS + STEP_NS * place // len(events) for place in range(len(events))]


class _Rows:
    """The rows of steps, asked for in order."""

    def __init__(self, rows: Iterator[StepRow]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, step: int) -> StepRow | None:
        """The step's row, if it has one."""
        while self._next is not None and self._next.step < step:
            self._next = next(self._rows, None)
        return self._next if self._next is not None and self._next.step == step else None


class _Lanes:
    """Puts events on lanes."""

    def __init__(self, run: RunLog, trace: TraceFile) -> None:
        self._run = run
        self._trace = trace
        self._requests = _RequestLanes(run, trace)
        self._selected: list[int] = []  # refs of the rows of the batch that is being built
        self._tickets: dict[int, Lane] = {}  # those in flight
        self._named: set[Lane] = set()
        self._counted: dict[tuple[str, str], int] = {}  # as last shown
        for process, name in ((ENGINE, "engine"), (RUNNER, "runner"), (REQUESTS, "requests")):
            trace.name_process(process, name)
        trace.name_lane(STEPS, "steps")

    # ---- steps -------------------------------------------------------------------------------

    def begin_step(self, number: int, times: list[int], events: list[Event]) -> None:
        """Show a step with its events."""
        self._trace.at(times[0])
        args = {"first_seq": events[0][SEQ], "last_seq": events[-1][SEQ]}
        self._trace.begin(STEPS, f"step {number}", "step", args)
        for time, event in zip(times, events, strict=True):
            self._trace.at(time)
            self._show(event)

    def end_step(self, row: StepRow | None) -> None:
        """End it, with what was held then, if it was sealed."""
        self._trace.end(STEPS)
        if row is None:
            return
        for counter, column in COUNTERS.items():
            value = getattr(row, column)
            if value is not None and self._counted.get(counter) != value:  # None: not told
                self._counted[counter] = value
                name, unit = counter
                self._trace.counter(STEPS, name, {unit: value})

    # ---- events ------------------------------------------------------------------------------

    def _show(self, event: Event) -> None:
        move = self._run.moves.get(event[MOVE])
        if move is None:
            return
        request = self._run.requests.get(event[REF]) if event[REF] is not None else None
        match move.trigger:
            case "submit_batch":
                self._submit(event)
            case "complete_batch" | "fail_batch":
                self._land(event, move)
            case "refuse" if request is not None:
                args = {"seq": event[SEQ], "reason": event[REASON]}
                self._trace.instant(STEPS, f"refuse {name_of(request)}", "refuse", args)
            case "open" | "close" | "recover":
                self._trace.instant(STEPS, move.trigger, "run", {"seq": event[SEQ]})
            case trigger if request is not None:
                if trigger == "select":
                    self._selected.append(event[REF])
                self._requests.show(event, move, request)

    def _submit(self, event: Event) -> None:
        data = _read(event, BatchData)
        lane = self._free_lane()
        self._tickets[event[TICKET]] = lane
        args: dict[str, object] = {"seq": event[SEQ], "ticket": event[TICKET]}
        name = f"ticket {event[TICKET]}"
        if data is not None:
            name = "+".join(sorted(data.works))
            args |= {"operation": data.operation, "rows": data.rows, "tokens": data.tokens}
        self._trace.begin(lane, name, "ticket", {**args, "reason": event[REASON]})
        for ref in dict.fromkeys(self._selected):
            self._trace.arrow(lane, self._requests.lane(ref), name)
        self._selected.clear()

    def _free_lane(self) -> Lane:
        taken = set(self._tickets.values())
        number = 0
        while (lane := Lane(RUNNER, FIRST_TICKET_LANE + number)) in taken:
            number += 1
        if lane not in self._named:
            self._named.add(lane)
            self._trace.name_lane(lane, f"in flight {number + 1}")
        return lane

    def _land(self, event: Event, move: Move) -> None:
        lane = self._tickets.pop(event[TICKET], None)
        if lane is not None:
            failed = {"failed": event[REASON]} if move.trigger == "fail_batch" else None
            self._trace.end(lane, failed)


class _RequestLanes:
    """One lane for each request: its status, inside it its work."""

    def __init__(self, run: RunLog, trace: TraceFile) -> None:
        self._run = run
        self._trace = trace
        self._known: dict[int, tuple[str, str]] = {}  # of live requests: status, work

    def lane(self, ref: int) -> Lane:
        """The lane of a request."""
        return Lane(REQUESTS, FIRST_REQUEST_LANE + ref)

    def show(self, event: Event, move: Move, request: RequestRow) -> None:
        """Show an event of a request."""
        ref, lane = event[REF], self.lane(event[REF])
        before = self._known.get(ref, (NULL, IDLE))
        after = _dest(move.status, before[0]), _dest(move.work, before[1])
        if ref not in self._known and after[0] != NULL:
            self._trace.name_lane(lane, name_of(request))
        self._move(lane, before, after, {"seq": event[SEQ], "trigger": move.trigger})
        if after[0] == NULL:
            self._known.pop(ref, None)
        else:
            self._known[ref] = after
        self._mark(lane, event, move)

    def _move(
        self, lane: Lane, before: tuple[str, str], after: tuple[str, str], args: dict[str, object]
    ) -> None:
        is_moved = before[0] != after[0]
        if before == after:
            return
        if before[1] != IDLE:
            self._trace.end(lane)
        if is_moved and before[0] != NULL:
            self._trace.end(lane)
        if is_moved and after[0] != NULL:
            self._trace.begin(lane, after[0], "status", args)
        if after[1] != IDLE:
            self._trace.begin(lane, after[1], "work", args)

    def _mark(self, lane: Lane, event: Event, move: Move) -> None:
        args: dict[str, object] = {"seq": event[SEQ]}
        if move.trigger == "output":
            args |= {"idx": event[A], "token_id": event[B], "exit_depth": event[C]}
            self._trace.instant(lane, f"output {event[A]}", "output", args)
        elif move.trigger in PREEMPTIONS:
            data = _read(event, PreemptionData)
            args |= {"for": None if data is None else data.for_whom, "reason": event[REASON]}
            self._trace.instant(lane, move.trigger, "preemption", args)
        elif move.trigger == "finish":
            data_of_end = _read(event, FinishData)
            args["finish_reason"] = None if data_of_end is None else data_of_end.finish_reason
            self._trace.instant(lane, "finish", "end", args)
        elif move.trigger in MARKS:
            args["reason"] = event[REASON]
            self._trace.instant(lane, move.trigger, move.trigger, args)


def _dest(edge: Edge, before: str) -> str:
    return before if edge is None else edge[1]


def _read(event: Event, into: type[T]) -> T | None:
    """What an event tells; None where a log was damaged: a trace shows what it can."""
    try:
        return decode(event[EXTRA], into)
    except msgspec.MsgspecError:
        return None
