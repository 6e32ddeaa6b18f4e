"""What the simulation found once is clean today: the files of `found/`, as it had shrunk them."""

from pathlib import Path

import pytest
from judging import judge

from rlt_fsm.workload import load
from runner.simulate import put_on_trial

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_a_workload_that_failed_once_is_clean(file):
    assert put_on_trial(load(file), judge).failures == []
