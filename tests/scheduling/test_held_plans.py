"""Where a request waits for victims in flight, the plan ends where the mode admits."""

from collections import Counter

import pytest

from rlt_fsm import Engine, EventLog
from rlt_fsm.admission import Admission
from rlt_fsm.drive import drive
from rlt_fsm.scheduler import Scheduler
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload


@pytest.fixture
def holds(monkeypatch):
    """Who held a plan that came to admission; after it no turn is tried."""
    counts, plan, admit, fill = Counter(), Scheduler.plan, Admission.admit, Scheduler._fill
    has_ended = False

    def plan_anew(scheduler):
        nonlocal has_ended
        has_ended = False
        return plan(scheduler)

    def admit_and_look(admission):
        nonlocal has_ended
        before = admission._preemption.held_for
        admit(admission)
        after = admission._preemption.held_for
        has_ended = after is not None
        if has_ended:
            counts["growth" if after is before else "entry"] += 1

    def fill_and_look(scheduler, turn):
        assert not has_ended, turn
        return fill(scheduler, turn)

    monkeypatch.setattr(Scheduler, "plan", plan_anew)
    monkeypatch.setattr(Admission, "admit", admit_and_look)
    monkeypatch.setattr(Scheduler, "_fill", fill_and_look)
    return counts


def test_a_plan_that_waits_for_victims_ends_at_admission_whoever_waits(holds):
    for seed in range(150):
        workload = random_workload(seed)
        runner = SimRunner.of(workload)
        with EventLog.memory() as log, Engine(runner, workload.config, log) as engine:
            drive(engine, workload, runner_faults=runner)
    assert holds["entry"] > 0
    assert holds["growth"] > 0
