"""Workloads of the shape that once livelocked drain: any mode, policy, pool and host budget."""

from pathlib import Path

import pytest
from judging import judge
from livelock_family import FAMILY, run, workload

from rlt_fsm.workload import load
from runner.simulate import put_on_trial

F11 = Path(__file__).parents[1] / "scenarios" / "data" / "F11-preemption-livelock.json"


@pytest.mark.parametrize("shape", FAMILY, ids=str)
def test_every_workload_of_the_shape_drains_and_is_clean(shape):
    result = run(shape, range(25))
    assert result.failed is None
    assert result.longest < 500
    assert result.preemptions > 0


def test_the_family_is_tight_enough_to_preempt_often():
    assert sum(run(FAMILY[0], range(40)).triggers.get(t, 0) for t in ("yield", "offload")) > 40


def test_without_room_on_the_host_requests_are_replayed():
    without = next(shape for shape in FAMILY if shape.host == 0)
    assert run(without, range(25)).triggers["rewind"] > 10


def test_a_shape_changes_the_configuration_alone():
    first, *others = (workload(5, shape=shape) for shape in FAMILY)
    assert all(other.requests == first.requests for other in others)


def test_the_livelock_workload_itself_drains_within_230_steps_with_no_block_left():
    trial = put_on_trial(load(F11), judge)
    assert trial.failures == []
    assert trial.steps <= 230
