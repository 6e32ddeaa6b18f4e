"""What the simulation found once is clean today: the files of `found/`, as it had shrunk them."""

from functools import partial

import pytest
from judging import judge
from neighbours import FOUND, neighbour

from rlt_fsm.workload import load
from runner.simulate import put_on_trial, simulate

FILES = sorted(FOUND.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workload_that_failed_once_is_clean(file):
    assert put_on_trial(load(file), judge).failures == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_neighbours_are_clean(file):
    result = simulate(range(30), judge, make=partial(neighbour, file))
    assert result.failed is None
    assert result.preemptions > 0
