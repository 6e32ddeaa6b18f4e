"""Reads one run a look at a time, while another process writes it, through `verify`'s own pass.

Every look opens the log, takes what was committed since, whole steps only, and lets it go: a writer
that ends in between leaves one plain file. How long to go on looking is `watch`'s to say.
"""

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from rlt_fsm.log.port import Checkpoint
from rlt_fsm.log.presence import holds_something

from .findings import Finding
from .reader import Log, RunLog, open_log
from .recount import Step
from .report import Report, RunReport
from .run_pass import Pass, trusted
from .steps import ends_run, in_order, is_cut_off, is_whole

Found = Callable[[Finding], None]


class Follower:
    """One run on its way; `number` None: the newest one at the first look that finds any."""

    def __init__(self, path: str, number: int | None, found: Found) -> None:
        self._path = path
        self._number = number
        self._found = found
        self._run: RunLog | None = None
        self._pass: Pass | None = None
        self._left: Step | None = None  # the newest step, of which more may come
        self._last_seq, self._last_step = 0, -1  # of what was checked
        self._seen_seq = 0
        self._seconds = 0.0
        self._events = self._steps = 0  # checked
        self._told: list[Finding] = []
        self._skipped: list[str] = []  # what was archived before it was checked, as sentences

    @property
    def has_begun(self) -> bool:
        """Whether the run is there."""
        return self._run is not None

    @property
    def is_foreign(self) -> bool:
        """Whether another engine writes it."""
        return self._run is not None and self._run.is_foreign

    @property
    def is_over(self) -> bool:
        """Whether its `close` was checked."""
        return self._pass is not None and self._pass.is_over

    @property
    def checked_seq(self) -> int:
        """The last event that was checked."""
        return self._last_seq

    def look(self) -> bool:
        """Check what was committed since; tells whether anything was.

        Raises:
            LogError: the log cannot be read, or is none.
        """
        started = time.perf_counter()
        try:
            if not holds_something(self._path):
                return False
            with open_log(self._path) as log:
                return self._look_into(log)
        finally:
            self._seconds += time.perf_counter() - started

    def report(self, why: str | None) -> Report:
        """Check what is left, and judge; `why` says why it goes on no further.

        Raises:
            LogError: no file came, it is no log, or it has no such run.
        """
        if self._run is None or self._pass is None:
            with open_log(self._path) as log:
                if self._number is not None:
                    log.run(self._number, from_checkpoint=True)
            return _report(self._path, [])
        left, self._left = self._left, None
        if left is not None:
            left.is_last = True
            if is_cut_off(self._run, left):
                left.row = None
            self._check(self._pass, left)
            self._tell(self._pass)
        return _report(self._path, [self._in_all(self._pass.report(self._seconds, why))])

    def _in_all(self, report: RunReport) -> RunReport:
        """The report of the last pass, and what those before it had seen."""
        if not self._skipped:
            return report
        earlier = [finding for finding in self._told if finding not in report.findings]
        return msgspec.structs.replace(
            report,
            verdict="findings" if earlier else report.verdict,
            findings=[*earlier, *report.findings],
            counts=dict(Counter(report.counts) + Counter(finding.invariant for finding in earlier)),
            events=self._events,
            steps=self._steps,
            trusted="; ".join(self._skipped),
        )

    # ---- one look ----------------------------------------------------------------------------

    def _look_into(self, log: Log) -> bool:
        if self._run is not None and self._pass is not None:
            at = log.reader.checkpoint(self._run.info.run_id)
            if at is not None and at.seq > self._last_seq:
                self._begin_at(log, at)
            else:
                self._run.go_on(log.reader, self._last_seq)
                self._pass.learn()
        elif (number := self._wanted(log)) is not None:
            self._run = log.run(number, from_checkpoint=True)
            self._pass = Pass(self._run)
        else:
            return False
        self._take(self._run, self._pass)
        self._tell(self._pass)
        newest = self._left.last_seq if self._left is not None else None
        seen, self._seen_seq = self._seen_seq, newest or self._last_seq
        return self._seen_seq > seen

    def _begin_at(self, log: Log, at: Checkpoint) -> None:
        """Go on behind what an archive took away unseen: whoever archived it had checked it."""
        before = None if self._run is None else trusted(self._run)
        if before is not None and not self._skipped:
            self._skipped.append(before)
        self._run = log.run(at.run_id, from_checkpoint=True)
        self._pass = Pass(self._run)
        self._skipped.append(
            f"seq {self._last_seq + 1:,} to {at.seq:,} went into {at.archive} before this watch "
            "had checked them: what they led to is taken on trust from the checkpoint"
        )
        self._last_seq, self._last_step = at.seq, at.step

    def _wanted(self, log: Log) -> int | None:
        newest = max((info.run_id for info in log.runs()), default=0)
        if self._number is None:
            return newest or None
        return self._number if self._number <= newest else None

    def _take(self, run: RunLog, taking: Pass) -> None:
        self._left = None
        for step in in_order(run, run.chunks(), run.steps(self._last_step)):
            if self._left is not None:
                self._check(taking, self._left)
            self._left = step
        newest = self._left
        if newest is None or not is_whole(run, newest):
            return
        if ends_run(run, newest):
            run.read_end()
            if run.info.ended_at is None and not run.is_foreign:
                return  # `close` may be there a moment before the header says so
            newest.is_last = True
        self._left = None
        self._check(taking, newest)

    def _check(self, taking: Pass, step: Step) -> None:
        taking.take(step)
        self._events += step.length
        self._steps += 1
        self._last_step = step.number
        self._last_seq = step.last_seq or self._last_seq

    def _tell(self, taking: Pass) -> None:
        for finding in taking.new_findings():
            self._told.append(finding)
            self._found(finding)


def _report(path: str, runs: list[RunReport]) -> Report:
    return Report(
        log=path,
        verdict=runs[0].verdict if runs else "inconclusive",
        findings=[finding for part in runs for finding in part.findings],
        events=sum(part.events for part in runs),
        seconds=sum(part.seconds for part in runs),
        runs=runs,
    )
