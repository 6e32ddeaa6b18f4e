"""What a start takes and says: the plan of the memory, the sizes of graphs, and refusals."""

from itertools import pairwise

import msgspec
import pytest
import torch
from driving import Driver, small_config, tiny_model

from rlt_fsm.config import CacheConfig, EngineConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.errors import ConfigError
from runner.cuda_graphs import StepGraphs, bucket_sizes, captured_steps, prompt_sizes
from runner.memory_plan import MemoryPlan, Working, working_memory
from runner.torch_runner import TorchRunner


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1]),
        (5, [1, 2, 4, 5]),
        (32, [1, 2, 4, 8, 16, 24, 32]),
        (200, [1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 200]),
    ],
)
def test_buckets_end_with_the_most_rows_there_can_be(most, sizes):
    assert bucket_sizes(most) == sizes


def test_a_started_runner_tells_where_its_memory_goes():
    driver = Driver(config=small_config(num_blocks=40))
    plan = driver.runner.memory_plan
    assert (plan.num_blocks, plan.source) == (40, "cache.num_blocks")
    assert plan.kv_pool == 40 * plan.block
    assert msgspec.to_builtins(plan)["working"]["reserve"] > 0


def test_a_plan_is_a_table_for_people():
    gib = 2**30
    plan = MemoryPlan(
        source="free memory", device="cuda:0", total=140 * gib, in_use=3 * gib,
        working=Working(gib, gib // 2, gib // 4), kv_pool=100 * gib, num_blocks=34133,
        block=3 << 20,
    )  # fmt: skip
    assert str(plan).splitlines() == [
        "memory of cuda:0: 140.00 GiB",
        "in use (weights and others)                          3.00 GiB",
        "activations                                          1.00 GiB",
        "graphs                                               0.50 GiB",
        "reserve                                              0.25 GiB",
        "KV pool (34,133 blocks, by free memory)            100.00 GiB",
        "left                                                35.25 GiB",
    ]


def test_more_requests_and_tokens_need_more_and_graphs_count():
    model = tiny_model().config.shape

    def needed(*, seqs=8, tokens=128, graphs=0, backend="triton"):
        scheduler = SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=tokens)
        config = EngineConfig(scheduler=scheduler)
        return working_memory(model, torch.bfloat16, config, backend=backend, graphs=graphs).total

    assert needed() < needed(seqs=64) < needed(seqs=64, graphs=30)
    assert needed() < needed(tokens=512) < needed(tokens=512, backend="torch")


def test_graphs_without_a_gpu_are_refused_with_what_to_do():
    config = EngineConfig(
        cache=CacheConfig(num_blocks=8), execution=ExecutionConfig(cuda_graphs=True)
    )
    with pytest.raises(ConfigError, match=r"cuda_graphs=True needs a CUDA device.*set it to False"):
        TorchRunner(tiny_model()).start(config)


def test_a_batch_takes_the_least_captured_bucket_that_holds_it():
    graphs = StepGraphs([4, 1, 2], torch.device("cpu"))
    graphs._graphs = dict.fromkeys([("coda", 1), ("coda", 4)])
    assert [graphs.bucket("coda", rows) for rows in (1, 2, 3, 4, 5)] == [1, None, 4, 4, None]
    assert graphs.bucket("prelude", 1) is None
    assert not graphs.replay("prelude", 1)


@pytest.mark.parametrize("most", [1, 40, 64, 65, 300, 512, 2048, 5000])
def test_every_prompt_has_a_captured_size_that_wastes_little(most):
    sizes = prompt_sizes(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    assert all(later <= first * 2 for first, later in pairwise(sizes))
    assert all(later <= first * 1.25 for first, later in pairwise(sizes) if first >= 256)


def test_graphs_are_counted_for_decode_steps_and_prompts():
    limits = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64)

    def counted(**execution):
        return captured_steps(
            EngineConfig(scheduler=limits, execution=ExecutionConfig(**execution))
        )

    assert counted(cuda_graphs=False) == 0
    assert counted(cuda_graphs=True) == 3 * len([1, 2, 4]) + len([64])
    assert counted(cuda_graphs=True, batch_invariant=True) == 3 * len([1, 2, 4])
