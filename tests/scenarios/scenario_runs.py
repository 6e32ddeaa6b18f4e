"""Runs a workload file's workload on SimRunner, for tests."""

from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import drive
from rlt_fsm.workload import Workload, needs, to_json
from runner.sim import SimRunner

NOT_HERE = {"speculative"}  # what this version's engine refuses to be configured with


def run(workload: Workload, log: EventLog):
    runner = SimRunner.of(workload)
    with Engine(runner, workload.config, log, workload=to_json(workload)) as engine:
        return drive(engine, workload, runner_faults=runner)


def can_run(workload: Workload) -> bool:
    return not needs(workload) & NOT_HERE
