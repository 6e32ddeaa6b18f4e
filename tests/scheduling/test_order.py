"""The lines that are kept in order are what looking at every live request would find."""

import pytest

from rlt_fsm import Engine, EventLog
from rlt_fsm.checkpoint import from_json, to_json
from rlt_fsm.drive import drive
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload


def look_at(state):
    """Compare the lines with the requests; return how many end later than they should."""
    every = sorted(state.by_ref.values(), key=lambda request: request.order_key)
    assert list(state.waiting) == [r for r in every if r.status == "WAITING"]
    assert list(state.holders) == [r for r in every if r.blocks]
    assert [r for r in every if r in state.retiring] == [r for r in every if r.finish_reason]
    assert all(r.blocks for r in every if r.status == "ACTIVE")
    return len(state.retiring)


@pytest.mark.parametrize("group", range(4))
def test_holders_and_retiring_requests_are_those_that_are_found_by_looking(group):
    late = 0
    for seed in range(group * 25, group * 25 + 25):
        workload = random_workload(seed, crashes=True)
        runner = SimRunner.of(workload)
        with EventLog.memory() as log, Engine(runner, workload.config, log) as engine:

            def look(steps, _, engine=engine):
                nonlocal late
                late += look_at(engine.state)
                if steps % 8 == 0:
                    saved = to_json(engine.state)
                    again = from_json(saved, engine.config, engine.model)
                    assert again.as_dict() == engine.state.as_dict()

            drive(engine, workload, runner_faults=runner, on_step=look)
    assert late > 0
