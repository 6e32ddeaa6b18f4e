"""`verify`: one pass over each run of a log, every invariant at once, and the verdict.

The pass knows no rule: it reads step by step, hands each event to the invariants that listen to its
move, and asks them again when the step has ended.
"""

import os
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal

import msgspec

from rlt_fsm.log.port import EventStore, StepRow

from .findings import Finding, Findings
from .invariants import ALL, Handler, S13Log
from .reader import MOVE, REF, SEQ, STEP, TICKET, Event, RunLog, open_log
from .recount import Recount, Step
from .shape import explain

Verdict = Literal["clean", "findings", "inconclusive"]
Progress = Callable[[int, int], None]  # (events read, events there are)

# Worst first: a finding is an answer, inconclusive is none, and neither may hide behind clean.
SEVERITY: tuple[Verdict, ...] = ("findings", "inconclusive", "clean")

# What a handler raises at a row that lacks what its trigger must tell.
UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, LookupError)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one run. `why` says why it is inconclusive; `counts` how often a rule broke."""

    run_id: int
    verdict: Verdict
    why: str | None
    events: int
    steps: int
    requests: int
    seconds: float
    findings: list[Finding]
    counts: dict[str, int]
    digest: str | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of a log. `runs` in order of their numbers, `findings` those of all runs."""

    log: str
    verdict: Verdict
    findings: list[Finding]
    events: int
    seconds: float
    runs: list[RunReport]

    @property
    def ok(self) -> bool:
        """Whether every run was read to its end and is clean."""
        return self.verdict == "clean"


def verify(
    db: str | os.PathLike[str] | EventStore,
    run: int | None = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Check every invariant over all runs of a log, or one.

    The worst run decides: findings, then inconclusive (no runs, no events, or no `close`: still
    being written, crashed or cut off), then clean. The log is never written to.

    Raises:
        LogError: the log cannot be opened or read, or has no such run.
    """
    with open_log(db) as log:
        numbers = [info.run_id for info in log.runs()] if run is None else [run]
        runs = [_Pass(log.run(number), progress).report() for number in numbers]
        verdicts = {part.verdict for part in runs} or {"inconclusive"}
        return Report(
            log=log.name,
            verdict=min(verdicts, key=SEVERITY.index),
            findings=[finding for part in runs for finding in part.findings],
            events=sum(part.events for part in runs),
            seconds=sum(part.seconds for part in runs),
            runs=runs,
        )


class _Handlers(dict[int, tuple[Handler, ...]]):
    """Who listens to each move of a log, found when the first event of it comes."""

    def __init__(self, find: Callable[[int], tuple[Handler, ...]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, number: int) -> tuple[Handler, ...]:
        found = self[number] = self._find(number)
        return found


class _Pass:
    """One reading of one run."""

    def __init__(self, run: RunLog, progress: Progress | None) -> None:
        self._run = run
        self._progress = progress
        self._findings = Findings()
        self._recount = Recount(run)
        self._log_rule = S13Log(self._recount, self._findings)
        self._invariants = [rule(self._recount, self._findings) for rule in ALL]
        self._handlers = _Handlers(self._listeners)
        self._step = Step(0, [], None)
        self._events = self._steps = 0

    def _listeners(self, number: int) -> tuple[Handler, ...]:
        move = self._run.moves[number]
        own: dict[str, Handler] = {
            "submit": self._recount.submitted,
            "submit_remote": self._recount.submitted,
            "submit_batch": self._note_ticket,
            "close": self._note_close,
        }
        first = [own[move.trigger]] if move.trigger in own else []
        rules = (rule.handler(move) for rule in (*self._invariants, self._log_rule))
        return (*first, *(handler for handler in rules if handler is not None))

    def _note_ticket(self, event: Event) -> None:
        self._step.ticket = event[TICKET]

    def _note_close(self, event: Event) -> None:
        del event
        self._step.has_close = True

    def report(self) -> RunReport:
        """Read the run to its end and judge it."""
        started = time.perf_counter()
        for step in self._read_steps():
            self._one_step(step)
        if self._step.number or self._events:
            self._log_rule.at_end(self._step)
        findings, why = self._findings.in_order(), self._inconclusive()
        return RunReport(
            run_id=self._run.info.run_id,
            verdict="findings" if findings else "clean" if why is None else "inconclusive",
            why=why,
            events=self._events,
            steps=self._steps,
            requests=sum(1 for request in self._recount.requests if request is not None),
            seconds=time.perf_counter() - started,
            findings=findings,
            counts=self._findings.counts,
            digest=self._run.info.digest,
        )

    def _inconclusive(self) -> str | None:
        if self._events == 0:
            return "it has no events"
        if self._log_rule.close_seq is None:
            last = self._step.events[-1][SEQ] if self._step.events else 0
            return f"it has no `close`: it ends at seq {last}, still being written or cut off"
        return None

    # ---- one step ----------------------------------------------------------------------------

    def _one_step(self, step: Step) -> None:
        self._step = step
        for rule in self._invariants:
            rule.before_step(step)
        handlers, latest = self._handlers, self._recount.latest_seq
        for event in self._log_rule.readable(step):
            try:
                for handler in handlers[event[MOVE]]:
                    handler(event)
                latest[event[REF]] = event[SEQ]
            except UNREADABLE:
                if not self._unreadable(event):
                    raise
        for rule in self._invariants:
            rule.after_step(step)
        self._log_rule.after_step(step)
        self._events += len(step.events)
        self._steps += 1
        if self._progress is not None and self._steps % 256 == 0:
            self._progress(self._events, self._run.info.last_seq)

    def _unreadable(self, event: Event) -> bool:
        """Report a row that an invariant stumbled over; False if it is well formed."""
        what = explain(event, self._run.moves[event[MOVE]])
        if what is not None:
            self._log_rule.malformed(event, what)
        return what is not None

    # ---- steps and their rows ----------------------------------------------------------------

    def _read_steps(self) -> Iterator[Step]:
        """Every step with events or a row, in order; the last one knows that it is the last."""
        last: Step | None = None
        for step in self._pair_rows():
            if last is not None:
                last.is_before_recovery = self._trigger(step.events[:1]) == "recover"
                yield last
            last = step
        if last is not None:
            last.is_last = True
            if self._is_cut_off(last):
                last.row = None
            yield last

    def _pair_rows(self) -> Iterator[Step]:
        rows = iter(self._run.steps())
        row = next(rows, None)
        events: list[Event] = []
        for number, group in groupby(self._run.events(), key=itemgetter(STEP)):
            while row is not None and row.step < number:
                yield Step(row.step, [], row)
                row = next(rows, None)
            events = list(group)
            if row is not None and row.step == number:
                yield Step(number, events, row)
                row = next(rows, None)
            else:
                yield Step(number, events, None)
        yield from self._trailing(rows, row, events[-1][SEQ] if events else 0)

    @staticmethod
    def _trailing(rows: Iterator[StepRow], row: StepRow | None, last_seq: int) -> Iterator[Step]:
        """Rows of steps after the last event: steps without events, not those that were cut off."""
        while row is not None and row.last_seq <= last_seq:
            yield Step(row.step, [], row)
            row = next(rows, None)

    def _is_cut_off(self, last: Step) -> bool:
        """Whether the last step's row tells of more events than are there."""
        return (
            last.row is not None
            and last.events != []
            and last.events[-1][SEQ] < last.row.last_seq
            and self._trigger(last.events[-1:]) != "close"
        )

    def _trigger(self, events: list[Event]) -> str | None:
        move = self._run.moves.get(events[0][MOVE]) if events else None
        return None if move is None else move.trigger
