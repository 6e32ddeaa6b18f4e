"""Digests stay: a change of one is a change of the schedule, and is said to be.

A digest covers each event, row, output and block of a run, in order. When a change of the schedule
is meant, look at it with `rlt-audit diff` first, then pin the new digests:

    python -m pytest tests/scenarios/test_golden_digests.py --rlt-golden-update
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from scenario_runs import can_run

from rlt_fsm import SamplingParams
from rlt_fsm.workload import load

HERE = Path(__file__).parent
FILES = sorted((*(HERE / "data").glob("*.json"), *(HERE / "moves").glob("*.json")))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_workload_runs_as_ever(file: Path, golden_digest: Callable[[Path], str]) -> None:
    if not can_run(load(file)):
        pytest.skip("needs more than this version does")
    golden_digest(file)


def test_an_engine_of_the_plugin_leaves_a_clean_log(audited_engine) -> None:
    engine = audited_engine({"scheduler": {"max_num_seqs": 1}})
    for name in "ab":
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=2))
    engine.step()
    engine.abort_request("a")
