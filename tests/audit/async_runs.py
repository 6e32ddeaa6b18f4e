"""The asynchronous run that corruption tests start from: in a file, with results out of order."""

from __future__ import annotations

from pathlib import Path

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.workload import Completion
from runner.sim import SimRunner

CONFIG = {
    "scheduler": {"max_num_seqs": 2, "max_num_batched_tokens": 6},
    "cache": {"num_blocks": 60, "block_size": 2},
    "execution": {"async_scheduling": True, "max_in_flight": 4},
}


def run_to_file(path: Path) -> None:
    """Two at a time, completion out of order, a late stop whose surplus is dropped, an abort."""
    runner = SimRunner(
        completion=Completion(order="random", seed=4, max_delay=3), script={("a", 1): {1: 0}}
    )
    with EventLog.open(path) as log, Engine(runner, from_mapping(CONFIG), log) as engine:
        early = {"exit_threshold": 0.5}
        engine.add_request("a", [5, 6, 7], SamplingParams(max_tokens=6, **early))
        engine.add_request("b", [1, 2, 3, 4], SamplingParams(max_tokens=5, **early))
        engine.add_request("c", [4] * 5, SamplingParams(max_tokens=3))
        while engine.state.by_id["b"].outputs == []:
            engine.step()
        engine.abort_request("b")
        while engine.has_unfinished_requests():
            engine.step()
