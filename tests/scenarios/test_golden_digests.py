"""Scenarios whose digest stays: a change of one is a change of the schedule, and is said to be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlt_fsm import SamplingParams

DATA = Path(__file__).parent / "data"
KEPT = [
    "F05-decode-wall-livelock",
    "F09-zero-progress-turn",
    "F11-preemption-livelock",
    "F13-preemption-thrash",
    "F41-priority-inversion-kv",
    "F43-preempt-budget-wrong",
    "F47-resident-victim-inversion",
    "F49-stale-token-count-after-hit",
    "F53-resume-prefix-partly-overwritten",
    "F89-slow-leak-after-client-aborts",
]


@pytest.mark.parametrize("name", KEPT)
def test_the_scenario_runs_as_ever(name: str, golden_digest: Callable[[Path], str]) -> None:
    golden_digest(DATA / f"{name}.json")


def test_an_engine_of_the_plugin_leaves_a_clean_log(audited_engine) -> None:
    engine = audited_engine({"scheduler": {"max_num_seqs": 1}})
    for name in "ab":
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=2))
    engine.step()
    engine.abort_request("a")
