"""A recorded asynchronous run, driven again without its model: the same events, to the digest."""

import pytest

from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import drive
from rlt_fsm.workload import to_json
from runner.recorded import Redrive
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload


def recorded(workload, log):
    """Run a workload; the run's digest."""
    runner = SimRunner.of(workload)
    with Engine(runner, workload.config, log, workload=to_json(workload)) as engine:
        drive(engine, workload, runner_faults=runner)
    return log.reader().runs()[0].digest


@pytest.mark.parametrize("group", range(4))
def test_a_redrive_repeats_completion_order_failures_and_late_exits(group):
    runs = 0
    for seed in range(group * 60, (group + 1) * 60):
        workload = random_workload(seed)
        if not workload.config.execution.async_scheduling:
            continue
        runs += 1
        with EventLog.memory() as log, EventLog.memory() as again:
            digest = recorded(workload, log)
            redriven = Redrive(log, 1, {}).run(again)
            assert not redriven.cut_off
            assert again.reader().runs()[0].digest == digest, seed
    assert runs > 15


def test_an_asynchronous_run_can_be_driven_again_with_other_settings():
    workload = next(
        workload
        for workload in map(random_workload, range(100))
        if workload.config.execution.async_scheduling and len(workload.requests) > 5
    )
    for settings in (
        {"execution.async_scheduling": "false"},
        {"execution.max_in_flight": "1"},
        {"scheduler.max_num_seqs": "1"},
    ):
        with EventLog.memory() as log, EventLog.memory() as again:
            recorded(workload, log)
            assert not Redrive(log, 1, settings).run(again).cut_off
