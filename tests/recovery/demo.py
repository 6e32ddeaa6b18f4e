"""Victims with a real model: the demo in fp32, sampling, with exits by its own gate."""

from collections.abc import Callable

import torch
from recovery.killing import Victim
from recovery.scenes import Wanted

from rlt_fsm import SamplingParams
from rlt_fsm.config import from_mapping
from runner.loading import load_model
from runner.torch_runner import TorchRunner

_CACHE = {"num_blocks": 96, "block_size": 4}
_SCHEDULER = {"max_num_seqs": 3, "max_num_batched_tokens": 16, "prefill_chunk_size": 5}
_EXECUTION = ({}, {"async_scheduling": True}, {"durability": "step"})


def demo_victims() -> Callable[[int], Victim]:
    """The model is read once, here, and computes nothing before a fork."""
    torch.set_num_threads(1)
    loaded = load_model("demo", "cpu", "float32")

    def victim(seed: int) -> Victim:
        execution = _EXECUTION[seed // 4 % len(_EXECUTION)]
        config = from_mapping({"scheduler": _SCHEDULER, "cache": _CACHE, "execution": execution})
        return Victim("demo", config, lambda: TorchRunner(loaded), _requests(seed))

    return victim


def _requests(seed: int) -> list[Wanted]:
    params = {"temperature": 0.9, "top_p": 0.95, "exit_threshold": 0.8, "min_loops": 1}
    return [
        Wanted(
            at=4 * number,
            name=f"r{number}",
            prompt=[(seed + 7 * number + i) % 11 + 1 for i in range(4 + 3 * number)],
            params=SamplingParams(max_tokens=6, seed=seed + number, ignore_eos=True, **params),
        )
        for number in range(4)
    ]
