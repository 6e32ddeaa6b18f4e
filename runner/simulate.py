"""The work of `rlt-fsm simulate`: seed after seed until one fails, then a small workload of it.

What a seed stands for is in `simulate_workloads.py`, what is held against it in
`simulate_check.py`. Options and exit statuses are in `cli.py`, printing in `simulate_console.py`.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Protocol

import msgspec

from rlt_fsm.errors import RltError, WorkloadError
from rlt_fsm.progress_line import Pace, duration
from rlt_fsm.wording import counted
from rlt_fsm.workload import Workload, load, parse, to_json
from rlt_fsm.workload_shrink import Object, shrink

from .simulate_check import Failure, Judge, Trial, put_on_trial
from .simulate_workloads import MAX_STEPS, random_workload

__all__ = [
    "MAX_STEPS",
    "Failed",
    "Failure",
    "Judge",
    "Simulated",
    "Trial",
    "check_file",
    "make_small",
    "put_on_trial",
    "simulate",
]

crashing_workload = partial(random_workload, crashes=True)
Tell = Callable[[str], None]  # what is going on, for a person who waits


class Make(Protocol):
    """What a seed stands for."""

    def __call__(self, seed: int, *, max_steps: int) -> Workload:
        """The workload of a seed, cut off after `max_steps` steps."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A seed's workload, and a small one that fails in the same way.

    `failures` are the small one's, the kind that was found first.
    """

    seed: int
    failures: Sequence[Failure]
    original: Workload
    small: Workload


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: seeds [first, end) were put on trial, all clean but the one in `failed`.

    `longest` is the most steps that one workload took, `triggers` counts the events.
    """

    first: int
    end: int
    steps: int
    longest: int
    events: int
    preemptions: int
    seconds: float
    triggers: dict[str, int]
    failed: Failed | None


def simulate(
    seeds: range,
    judge: Judge,
    *,
    max_steps: int = MAX_STEPS,
    seconds: float | None = None,
    tell: Tell | None = None,
    make: Make = crashing_workload,
) -> Simulated:
    """Put the workload of every seed on trial, up to the first that fails or until time is up.

    Args:
        seeds: consecutive seeds.
        judge: the auditor, as a function of an open log.
        max_steps: a workload with live requests after so many steps has failed.
        seconds: no further workload is begun after so long; one always is.
        tell: called before every trial.
        make: gives a seed's workload.
    """
    started = time.monotonic()
    trials: list[Trial] = []
    failed, told = None, _Told(tell, len(seeds), seconds)
    for seed in seeds:
        if trials and seconds is not None and time.monotonic() - started >= seconds:
            break
        told.before(seed, len(trials))
        workload = make(seed, max_steps=max_steps)
        trials.append(put_on_trial(workload, judge))
        if trials[-1].failures:
            small, failures = make_small(workload, judge, tell=tell)
            failed = Failed(seed=seed, failures=failures, original=workload, small=small)
            break
    triggers: Counter[str] = Counter()
    for trial in trials:
        triggers.update(trial.triggers)
    return Simulated(
        first=seeds.start,
        end=seeds.start + len(trials),
        steps=sum(trial.steps for trial in trials),
        longest=max((trial.steps for trial in trials), default=0),
        events=sum(trial.events for trial in trials),
        preemptions=sum(trial.preemptions for trial in trials),
        seconds=time.monotonic() - started,
        triggers=dict(sorted(triggers.items())),
        failed=failed,
    )


class _Told:
    """What a person hears before each trial: how many are clean, how fast, and how long it takes.

    Either the number of workloads is the end of it, or so many `seconds`.
    """

    def __init__(self, tell: Tell | None, workloads: int, seconds: float | None) -> None:
        self._tell = tell
        self._workloads = workloads if seconds is None else 0
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        self._pace = Pace()

    def before(self, seed: int, clean: int) -> None:
        """A trial begins."""
        if self._tell is None:
            return
        self._pace.note(clean, self._workloads)
        text = f"seed {seed}, {counted(clean, 'workload')} clean{self._pace.text()}"
        if self._ends_at is not None:
            text += f", {duration(max(0.0, self._ends_at - time.monotonic()))} left"
        self._tell(text)


def check_file(path: str, judge: Judge) -> Trial:
    """Put a workload file on trial.

    Raises:
        RltError: it cannot be read or used, or is not for the sim.
    """
    workload = load(path)
    if workload.model != "sim":
        raise WorkloadError(f"{path}: its model is {workload.model!r}; only 'sim' is simulated")
    return put_on_trial(workload, judge)


def make_small(
    workload: Workload, judge: Judge, *, tell: Tell | None = None
) -> tuple[Workload, Sequence[Failure]]:
    """A small workload that fails as this one does, and how it fails, the common kind first."""
    kind = put_on_trial(workload, judge).failures[0].kind
    trials = count(1)

    def of_that_kind(candidate: Object) -> tuple[Workload, list[Failure]] | None:
        if tell is not None:
            tell(f"making a smaller workload of {kind}: trial {next(trials)}")
        try:
            smaller = parse(msgspec.json.encode(candidate))
            failures = put_on_trial(smaller, judge).failures
        except RltError:  # no workload, or one that no engine takes
            return None
        found = sorted(failures, key=lambda failure: failure.kind != kind)  # stable
        return (smaller, found) if found and found[0].kind == kind else None

    data: Object = msgspec.json.decode(to_json(workload))
    smallest = of_that_kind(shrink(data, lambda candidate: of_that_kind(candidate) is not None))
    assert smallest is not None, "a failure is the same every time"
    return smallest
