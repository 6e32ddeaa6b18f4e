"""Two ways to look at a workload: with the auditor's rules, or at two schedulers side by side.

Who runs a workload is handed in: the auditor has no engine.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from rlt_fsm.errors import WorkloadError
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import EventStore

from ..comparing.runs import Code
from ..diff import diff
from ..diffing.difference import Level
from .symptoms import Observed, Symptom, difference_of, findings_of

WAIT_S = 3600.0


class Stop(Protocol):
    """How an engine stopped: an error and where it was raised, and a sentence."""

    @property
    def kind(self) -> str:
        """`stopped-ERROR-module.function`."""

    @property
    def message(self) -> str:
        """The sentence."""


# Runs a workload's text into an open log; how the engine stopped, None if it did not.
RunInto = Callable[[bytes, EventLog], Stop | None]
Observe = Callable[[bytes], Observed]
# Runs a workload's text; the log of it.
Side = Callable[[bytes], AbstractContextManager[EventStore]]


def by_rules(run_into: RunInto) -> Observe:
    """What the auditor finds in a run, or how the engine stopped."""

    def observe(workload: bytes) -> Observed:
        with EventLog.memory() as log:
            stop = run_into(workload, log)
            (info,) = log.reader().runs()
            found = findings_of(log, info.run_id)
            symptoms = {symptom: finding.message for symptom, finding in found.items()}
            steps = _steps(log)
            if stop is not None:
                _, what, place = stop.kind.split("-", 2)
                symptoms[Symptom(kind="stop", what=what, place=place)] = stop.message
            first = min((finding.step for finding in found.values()), default=steps)
            return Observed(symptoms=symptoms, steps=steps, step=first, digests=(info.digest,))

    return observe


def by_comparing(a: Side, b: Side, level: Level) -> Observe:
    """The first difference between what two schedulers do."""

    def observe(workload: bytes) -> Observed:
        with a(workload) as log_a, b(workload) as log_b:
            found = diff(log_a, log_b, level=level, anyway=True)
            steps = max(found.summary.a.steps, found.summary.b.steps)
            step = steps if found.first is None else found.first.step
            digests = (found.a.digest, found.b.digest)
            return Observed(symptoms=difference_of(found), steps=steps, step=step, digests=digests)

    return observe


def in_process(run_into: RunInto) -> Side:
    """A side that runs in this process."""

    @contextmanager
    def run(workload: bytes) -> Iterator[EventStore]:
        with EventLog.memory() as log:
            run_into(workload, log)
            yield log

    return run


def in_code(code: Code, folder: Path) -> Side:
    """A side that is the code of another folder; its files go to `folder`."""

    @contextmanager
    def run(workload: bytes) -> Iterator[EventStore]:
        file, log = folder / "workload.json", folder / "side.db"
        file.write_bytes(workload)
        log.unlink(missing_ok=True)
        code.start(file, log)
        while not code.is_over(WAIT_S):
            pass
        ran = code.result()
        if ran.end == "unusable":
            raise WorkloadError(f"the other revision cannot run it: {ran.message}")
        with EventLog.open_for_reading(log) as written:
            yield written

    return run


def _steps(log: EventLog) -> int:
    return max((step[0] for step in log.reader().steps(1)), default=-1) + 1
