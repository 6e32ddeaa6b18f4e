"""The run that the corruption tests start from: an engine on SimRunner, in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_fsm import Engine, EventLog, RequestRefused, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

TWO_DECIDE = {"exit_threshold": 0.5}  # the gate decides; the sim lets many out early
CONFIG = {
    "scheduler": {"max_num_seqs": 3, "max_num_batched_tokens": 6, "prefill_chunk_size": 4},
    "cache": {"num_blocks": 60, "block_size": 2},
}


def _drain(engine: Engine) -> None:
    while engine.has_unfinished_requests():
        engine.step()


def run_to_file(path: Path) -> None:
    """Chunked prompts, waiting for slots and blocks, early exits, a stop, aborts, a refusal, ids
    used again.
    """
    with EventLog.open(path) as log, Engine(SimRunner(), from_mapping(CONFIG), log) as engine:
        engine.add_request("a", [5, 6, 7, 8, 9], SamplingParams(max_tokens=4, **TWO_DECIDE))
        engine.add_request("b", [1, 2, 3], SamplingParams(max_tokens=2))
        engine.add_request("c", [4] * 9, SamplingParams(max_tokens=3, logprobs=0, **TWO_DECIDE))
        with pytest.raises(RequestRefused):
            engine.add_request("a", [1])
        engine.add_request("d", [3, 4, 5, 6], SamplingParams(max_tokens=3))
        for _ in range(4):
            engine.step()
        engine.abort_request("d")
        _drain(engine)
        every_second = tuple(range(1, 512, 2))
        engine.add_request("a", [2, 1], SamplingParams(max_tokens=6, stop_token_ids=every_second))
        engine.add_request("d", [7] * 7, SamplingParams(max_tokens=1))
        _drain(engine)
        engine.add_request("e", [1, 1], SamplingParams(max_tokens=1))
        engine.abort_request("e")
