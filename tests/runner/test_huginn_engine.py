"""Huginn under the engine: however it is scheduled, the dense reference's tokens and depths.

Its states start from a draw of (seed, position), its prelude and coda keep KV of their own: chunks,
preemptions, replays and late results must not disturb either.
"""

from collections import Counter

import pytest
import torch
from driving import LateTorchRunner
from driving_huginn import reference_config, tiny_huginn
from reference import dense_huginn
from told import triggers

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner.torch_runner import TorchRunner

LOADED = tiny_huginn(seed=2)
# prompt, the depth of each output, seed, priority, the step of its arrival
REQUESTS = {
    "a": ([11, 12, 13, 14, 15, 16, 17, 18, 1, 2, 3], (4, 2, 3, 1, 4, 1, 2, 4, 3), 7, 3, 0),
    "b": ([7], (4, 1, 4, 2, 2, 3, 1, 1, 4, 3, 2), 2**63 - 1, 2, 0),
    "c": ([11, 12, 13, 14, 15, 16, 17, 18, 40], (4, 4, 1, 4, 4), 8, 2, 3),
    "d": ([11, 12, 13, 14, 15, 16], (4, 1, 1, 1, 1, 1, 1), 7, 1, 6),
    "e": ([11, 12, 13, 14, 15, 16, 17, 18, 1, 2, 9, 9, 9], (4, 4, 4, 4), 0, 0, 30),
    "f": ([60, 3], (4, 2, 1, 2, 3, 3, 1, 2, 4), 2**40 + 1, 0, 45),
}

SPLIT = {"atomic_prefill": False}
ALONE = {"batch_invariant": True}
TIGHT = {"num_blocks": 72, "incremental_allocation": True}
URGENT = {"policy": "priority", "enable_preemption": True, "max_num_seqs": 3}
REWINDS = {**TIGHT, "host_snapshot_blocks": 0}
WAYS = {
    "atomic": ({}, {}, {}),
    "one token at a time": ({"max_num_batched_tokens": 1}, {}, {}),
    "whole prompts": ({"max_num_batched_tokens": 64, "prefill_chunk_size": 64}, {}, {}),
    "split": ({}, {}, SPLIT),
    "no refill": ({"mode": "no_refill"}, {}, {}),
    "mixed": ({"mode": "mixed"}, {}, SPLIT),
    "alone": ({}, {}, ALONE),
    "alone and mixed": ({"mode": "mixed"}, {}, {**SPLIT, **ALONE}),
    "offloads": (URGENT, TIGHT, {}),
    "offloads of split prompts": (URGENT, TIGHT, SPLIT),
    "rewinds": (URGENT, REWINDS, {}),
    "rewinds of split prompts": (URGENT, REWINDS, SPLIT),
}
# Results that come late, in any order; the engine learns of tokens and exits after the next launch.
LATE_WAYS = [way for way in WAYS if "alone" not in way]


def config(way, layout="last_exited", *, is_async=False):
    scheduler, cache, execution = WAYS[way]
    sections = {
        "scheduler": {"max_num_batched_tokens": 6, "prefill_chunk_size": 4, **scheduler},
        "cache": {"num_blocks": 400, "block_size": 2, "layout": layout, **cache},
        "execution": {"async_scheduling": is_async, "max_in_flight": 4, **execution},
        "exit": {"mode": "trace"},
    }
    return from_mapping(sections)


def params_of(name):
    _, depths, seed, priority, _ = REQUESTS[name]
    return SamplingParams(
        max_tokens=len(depths), min_loops=1, exit_depths=depths, seed=seed, priority=priority
    )


def served(runner, engine_config):
    """Every request's completion, and how often each trigger happened; the log is clean."""
    completions, step, waiting = {}, 0, dict(REQUESTS)
    with EventLog.memory() as log:
        with Engine(runner, engine_config, log) as engine:
            while waiting or engine.has_unfinished_requests():
                for name in [n for n, request in waiting.items() if request[-1] <= step]:
                    engine.add_request(name, waiting.pop(name)[0], params_of(name))
                for output in engine.step():
                    if output.finished:
                        completions[output.request_id] = (output.token_ids, output.exit_depths)
                step += 1
            assert engine.state.pool.free == engine.config.cache.num_blocks
            happened = Counter(triggers(log))
        assert audit.verify(log).findings == []
    return completions, happened


@pytest.fixture(scope="module")
def references():
    weights, shape = LOADED.model.state_dict(), reference_config(LOADED)
    found = {}
    for layout in ("last_exited", "shared"):
        found[layout] = {}
        for name, (prompt, depths, seed, _, _) in REQUESTS.items():
            made = dense_huginn.generate(
                weights, shape, prompt, depths, max_tokens=len(depths), seed=seed, layout=layout
            )
            found[layout][name] = (made.tokens, list(depths))
    return found


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_scheduling_gives_the_references_completions(way, layout, references):
    completions, happened = served(TorchRunner(LOADED), config(way, layout))
    assert completions == references[layout]
    if layout == "last_exited":
        assert bool(happened["offload"]) == ("offloads" in way)
        assert bool(happened["rewind"]) == ("rewinds" in way)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", LATE_WAYS)
def test_results_that_come_late_change_nothing(way, seed, references):
    completions, _ = served(LateTorchRunner(LOADED, seed), config(way, is_async=True))
    assert completions == references["last_exited"]


def test_the_references_completions_depend_on_seed_depth_and_layout():
    """Else the comparisons above would say little."""
    weights, shape = LOADED.model.state_dict(), reference_config(LOADED)
    prompt, depths, seed, _, _ = REQUESTS["a"]

    def tokens(*, depths=depths, seed=seed, layout="last_exited"):
        made = dense_huginn.generate(
            weights, shape, prompt, depths, max_tokens=len(depths), seed=seed, layout=layout
        )
        return tuple(made.tokens)

    full = (4,) * len(depths)
    others = [tokens(), tokens(seed=8), tokens(depths=full), tokens(layout="shared")]
    assert len(set(others)) == len(others)


def test_alone_the_bits_do_not_depend_on_batch_mates():
    def logprobs(names):
        found = {}
        with Engine(TorchRunner(LOADED), config("alone and mixed")) as engine:
            for name in names:
                params = params_of(name)
                engine.add_request(
                    name,
                    REQUESTS[name][0],
                    SamplingParams(
                        max_tokens=params.max_tokens,
                        min_loops=1,
                        exit_depths=params.exit_depths,
                        seed=params.seed,
                        logprobs=0,
                    ),
                )
            while engine.has_unfinished_requests():
                for output in engine.step():
                    found[output.request_id] = output.logprobs
        return found

    together = logprobs(REQUESTS)
    for name in REQUESTS:
        assert logprobs([name])[name] == together[name]


def test_there_is_no_gate_so_a_threshold_lets_nobody_leave_early():
    prompt = REQUESTS["a"][0]
    with Engine(TorchRunner(LOADED), EngineConfig(cache=CacheConfig(num_blocks=60))) as engine:
        engine.add_request("full", prompt, SamplingParams(max_tokens=4))
        engine.add_request("some", prompt, SamplingParams(max_tokens=4, exit_threshold=0.01))
        engine.add_request("two", prompt, SamplingParams(max_tokens=4, max_loops=2))
        found = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                found[output.request_id] = (output.token_ids, output.exit_depths)
    assert found["some"] == found["full"]
    assert found["full"][1] == [4, 4, 4, 4]
    assert found["two"][1] == [4, 2, 2, 2]


def test_the_global_generator_is_neither_asked_nor_moved():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, _ = served(TorchRunner(LOADED), config("atomic"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again, _ = served(TorchRunner(LOADED), config("atomic"))
    assert first == again
