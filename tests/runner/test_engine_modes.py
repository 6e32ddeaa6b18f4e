"""However the engine schedules, the same requests give the same tokens and exit depths.

Every way of scheduling is held to serial runs of the dense reference: prompts atomic and split,
three modes, preemption to the host, rewinds that replay, shared prompt pages.
"""

from collections import Counter

import msgspec
import pytest
from driving import dense_config, tiny_model
from reference import dense_ouro
from reference.dense_ouro import ExitRule
from told import triggers

from rlt_fsm import (
    CacheConfig,
    Engine,
    EngineConfig,
    ExecutionConfig,
    SamplingParams,
    SchedulerConfig,
)
from runner.torch_runner import TorchRunner

LOADED = tiny_model(seed=21)
SHARED_START = [11, 12, 13, 14, 15, 16, 17, 18]
# prompt, outputs, exit_threshold or the depth of each output, priority, the step of its arrival
REQUESTS = {
    "a": ([*SHARED_START, 1, 2, 3], 9, (4, 2, 3, 1, 4, 1, 2, 4, 3), 3, 0),
    "b": ([7], 11, (4, 1, 4, 2, 2, 3, 1, 1, 4, 3, 2), 2, 0),
    "c": ([*SHARED_START, 40], 5, 0.7, 2, 3),
    "d": (SHARED_START[:6], 7, 0.0, 1, 6),
    "e": ([*SHARED_START, 1, 2, 9, 9, 9], 4, 1.0, 0, 30),
    "f": ([60, 3], 9, 0.65, 0, 45),
}

SPLIT = ExecutionConfig(atomic_prefill=False)
TIGHT = {"num_blocks": 56, "block_size": 2, "incremental_allocation": True}
URGENT = {"policy": "priority", "enable_preemption": True, "max_num_seqs": 3}
SMALL_CHUNKS = {"max_num_batched_tokens": 6, "prefill_chunk_size": 4}


def config(scheduler, cache, execution=None):
    return EngineConfig(
        scheduler=SchedulerConfig(**{**SMALL_CHUNKS, **scheduler}),
        cache=CacheConfig(**{"num_blocks": 400, "block_size": 2, **cache}),
        execution=execution or ExecutionConfig(),
    )


WAYS = {
    "atomic": config({}, {}),
    "one by one": config({"max_num_seqs": 1}, {}),
    "split": config({}, {}, SPLIT),
    "no refill": config({"mode": "no_refill"}, {}),
    "mixed": config({"mode": "mixed"}, {}, SPLIT),
    "offloads": config(URGENT, TIGHT),
    "offloads of split prompts": config(URGENT, TIGHT, SPLIT),
    "rewinds": config(URGENT, {**TIGHT, "host_snapshot_blocks": 0}),
    "rewinds of split prompts": config(URGENT, {**TIGHT, "host_snapshot_blocks": 0}, SPLIT),
    "prefix pages": config({}, {"enable_prefix_caching": True}),
    "prefix pages and rewinds": config(
        URGENT, {**TIGHT, "host_snapshot_blocks": 0, "enable_prefix_caching": True}, SPLIT
    ),
}
SHARED_WAYS = [way for way in WAYS if "prefix" not in way]


def reference(layout):
    completions = {}
    for name, (prompt, max_tokens, exits, _, _) in REQUESTS.items():
        made = dense_ouro.generate(
            LOADED.model.state_dict(),
            dense_config(LOADED),
            prompt,
            exits if isinstance(exits, tuple) else ExitRule(exits, min_loops=1),
            layout,
            max_tokens=max_tokens,
        )
        completions[name] = (made.tokens, made.exit_depths)
    return completions


def served(engine_config):
    """Every request's completion, and how often each trigger, mixed replay and batch happened."""
    with Engine(TorchRunner(LOADED), engine_config) as engine:
        completions, step, replays, waiting = {}, 0, 0, dict(REQUESTS)
        shared_batches = Counter()
        while waiting or engine.has_unfinished_requests():
            for name, (prompt, max_tokens, exits, priority, arrives) in list(waiting.items()):
                if arrives <= step:
                    params = SamplingParams(max_tokens=max_tokens, min_loops=1, priority=priority)
                    rule = "exit_depths" if isinstance(exits, tuple) else "exit_threshold"
                    params = msgspec.structs.replace(params, **{rule: exits})
                    engine.add_request(name, prompt, params)
                    del waiting[name]
            for output in engine.step():
                if output.finished:
                    completions[output.request_id] = (output.token_ids, output.exit_depths)
            batch = engine.last_schedule.batch if engine.last_schedule else None
            if batch is not None:
                replays += sum(len(set(row.replay_depths)) > 1 for row in batch.rows)
                shared_batches.update(["+".join(batch.works)] if len(batch.works) > 1 else [])
            step += 1
        counts = Counter(triggers(engine.log))
    return completions, {"replay of several depths": replays, **counts, **shared_batches}


@pytest.fixture(scope="module")
def references():
    return {layout: reference(layout) for layout in ("last_exited", "shared")}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_scheduling_gives_the_references_completions(way, references):
    completions, _ = served(WAYS[way])
    assert completions == references["last_exited"]


@pytest.mark.parametrize("way", SHARED_WAYS)
def test_every_way_of_scheduling_with_a_shared_plane(way, references):
    cache = msgspec.structs.replace(WAYS[way].cache, layout="shared")
    if cache.num_blocks == TIGHT["num_blocks"]:
        cache = msgspec.structs.replace(cache, num_blocks=TIGHT["num_blocks"] // 4)
    completions, _ = served(msgspec.structs.replace(WAYS[way], cache=cache))
    assert completions == references["shared"]


@pytest.mark.parametrize(
    ("way", "triggers"),
    [
        ("offloads", ["offload", "resume"]),
        ("offloads of split prompts", ["offload", "resume"]),
        ("rewinds", ["rewind", "replay of several depths"]),
        ("rewinds of split prompts", ["rewind", "replay of several depths"]),
        ("mixed", ["DECODE_PRELUDE+PROMPT_PRELUDE", "DECODE_RECURRENT+PROMPT_RECURRENT"]),
        ("prefix pages", ["publish"]),
        ("prefix pages and rewinds", ["publish", "rewind"]),
    ],
)
def test_the_ways_above_do_what_they_are_named_after(way, triggers):
    _, counts = served(WAYS[way])
    assert all(counts.get(trigger) for trigger in triggers), counts
