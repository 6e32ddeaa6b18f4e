"""`verify`: one pass over each run of a log, every invariant at once, and the verdict.

The pass knows no rule: it reads step by step, hands each event to the invariants that listen to its
move, and asks them again when the step has ended.
"""

import os
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from rlt_fsm.arguments import function_or_none
from rlt_fsm.log.port import EventStore

from . import unrecorded
from .findings import Finding, Findings
from .invariants import ALL, Handler, S13Log
from .reader import MOVE, REF, SEQ, TICKET, Event, RunLog, open_log
from .recount import Recount, Step
from .shape import explain
from .steps import whole_run
from .streaks import SHORTEST, Streak, Together, streak_of, stretches

Verdict = Literal["clean", "findings", "inconclusive"]
Progress = Callable[[int, int], None]  # (events read, events there are)

# Worst first: a finding is an answer, inconclusive is none, and neither may hide behind clean.
SEVERITY: tuple[Verdict, ...] = ("findings", "inconclusive", "clean")

# What a handler raises at a row that lacks what its trigger must tell.
UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, LookupError)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one run. `why` says why it is inconclusive; `counts` how often a rule broke.

    `unchecked` has a sentence for each thing that a log of another engine does not tell.
    """

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
    unchecked: list[str]


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
    function_or_none("progress", progress)
    with open_log(db) as log:
        numbers = [info.run_id for info in log.runs()] if run is None else [run]
        runs = [Pass(log.run(number), progress).whole_run() for number in numbers]
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


class Pass:
    """One reading of one run."""

    def __init__(
        self, run: RunLog, progress: Progress | None = None, *, one_by_one: bool = False
    ) -> None:
        self._run = run
        # The reference: no streaks. What may come of work in flight is told one by one only.
        self._one_by_one = one_by_one or run.config.execution.async_scheduling
        self._progress = progress
        self._findings = Findings()
        self._recount = Recount(run)
        self._log_rule = S13Log(self._recount, self._findings)
        left_out = unrecorded.left_out(run.absent)
        rules = [rule for rule in ALL if rule.id not in left_out]
        self._invariants = [rule(self._recount, self._findings) for rule in rules]
        self._handlers = _Handlers(self._listeners)
        self._together: dict[int, list[Together]] = {}
        self._step = Step(0, [], None)
        self._events = self._steps = self._last_seq = 0

    def _listeners(self, number: int) -> tuple[Handler, ...]:
        move = self._run.moves[number]
        own = self._own_handlers()
        first = [own[move.trigger]] if move.trigger in own else []
        rules = (rule.handler(move) for rule in (*self._invariants, self._log_rule))
        return (*first, *(handler for handler in rules if handler is not None))

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "submit": self._recount.submitted,
            "submit_remote": self._recount.submitted,
            "submit_batch": self._note_ticket,
            "close": self._note_close,
        }

    def _judges(self, number: int) -> list[Together]:
        """Those of every rule that listens to a move, if they all judge its streaks."""
        known = self._together.get(number)
        if known is None:
            move = self._run.moves[number]
            own = move.trigger in self._own_handlers()
            rules = [rule for rule in (*self._invariants, self._log_rule) if rule.handler(move)]
            judges = [None if own else rule.together(move) for rule in rules]
            together = [judge for judge in judges if judge is not None]
            known = together if len(together) == len(judges) else []
            self._together[number] = known
        return known

    def _note_ticket(self, event: Event) -> None:
        self._step.ticket = event[TICKET]

    def _note_close(self, event: Event) -> None:
        del event
        self._step.has_close = True

    def whole_run(self) -> RunReport:
        """Read the run to its end and judge it."""
        started = time.perf_counter()
        for step in whole_run(self._run):
            self.take(step)
        return self.report(time.perf_counter() - started)

    def learn(self) -> None:
        """Take up what the run has named since: its requests and moves."""
        self._recount.grow()
        self._log_rule.learn()

    @property
    def is_over(self) -> bool:
        """Whether `close` was read."""
        return self._log_rule.close_seq is not None

    def new_findings(self) -> list[Finding]:
        """Those since this was asked last."""
        return self._findings.new()

    def report(self, seconds: float, why: str | None = None) -> RunReport:
        """Judge what was read; `why` says why a run without its end goes on no further."""
        if self._steps:
            self._log_rule.at_end(self._step)
            for rule in self._invariants:
                rule.at_end(self._step)
        findings, why = self._findings.in_order(), self._inconclusive(why)
        return RunReport(
            run_id=self._run.info.run_id,
            verdict="findings" if findings else "clean" if why is None else "inconclusive",
            why=why,
            events=self._events,
            steps=self._steps,
            requests=sum(1 for request in self._recount.requests if request is not None),
            seconds=seconds,
            findings=findings,
            counts=self._findings.counts,
            digest=self._run.info.digest,
            unchecked=unrecorded.sentences(self._run.absent),
        )

    def _inconclusive(self, why: str | None) -> str | None:
        if self._events == 0:
            return "it has no events"
        if not self.is_over:
            end = why or "still being written or cut off"
            return f"it has no `close`: it ends at seq {self._last_seq}, {end}"
        return None

    # ---- one step ----------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Check the next step."""
        self._step = step
        self._recount.is_recovering = step.is_recovery
        for rule in self._invariants:
            rule.before_step(step)
        readable = self._log_rule.readable(step)
        if readable is not None:
            self._take_events(readable)
        elif self._one_by_one:
            self._take_events(step.events())
        else:
            self._take_stretches(step)
        for rule in self._invariants:
            rule.after_step(step)
        self._log_rule.after_step(step)
        self._events += step.length
        self._last_seq = step.last_seq or self._last_seq
        self._steps += 1
        if self._progress is not None and self._steps % 256 == 0:
            self._progress(self._events, self._run.info.last_seq)

    def _take_events(self, events: list[Event]) -> None:
        """Show every event to every rule that listens to its move."""
        handlers, latest = self._handlers, self._recount.latest_seq
        for event in events:
            try:
                for handler in handlers[event[MOVE]]:
                    handler(event)
                latest[event[REF]] = event[SEQ]
            except UNREADABLE:
                if not self._unreadable(event):
                    raise

    def _take_stretches(self, step: Step) -> None:
        """The same, but for streaks of which every rule says at one go that nothing is wrong."""
        for move, start, end in stretches(step.columns[MOVE]):
            judges = self._judges(move) if end - start >= SHORTEST else []
            streak = streak_of(step, start, end) if judges else None
            if streak is None or not _all_hold(judges, streak):
                self._take_events(step.events(start, end))
                continue
            for judge in judges:
                judge.note(streak)
            self._recount.latest_seq.update(zip(streak.refs, streak.seqs, strict=True))

    def _unreadable(self, event: Event) -> bool:
        """Report a row that an invariant stumbled over; False if it is well formed."""
        what = explain(event, self._run.moves[event[MOVE]])
        if what is not None:
            self._log_rule.malformed(event, what)
        return what is not None


def _all_hold(judges: list[Together], streak: Streak) -> bool:
    try:
        return all(judge.holds(streak) for judge in judges)
    except UNREADABLE:
        return False
