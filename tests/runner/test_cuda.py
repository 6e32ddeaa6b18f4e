"""The same runner on a CUDA device; skipped where there is none."""

import gc

import pytest
import torch
from driving import Driver, completions, dense_config, small_config, tiny_model
from driving_huginn import reference_config, tiny_huginn
from reference import dense_huginn, dense_ouro

from rlt_fsm.config import (
    CacheConfig,
    EngineConfig,
    ExecutionConfig,
    ExitConfig,
    SchedulerConfig,
)
from rlt_fsm.engine import Engine
from rlt_fsm.errors import ConfigError
from rlt_fsm.params import SamplingParams
from runner import LLM
from runner.demo.evaluate import evaluation_problems
from runner.torch_runner import TorchRunner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROMPTS = {"a": [5, 9, 2, 33, 17], "b": [7], "c": [1, 50, 3]}
DEPTHS = {"a": (4, 2, 3, 1, 4), "b": (4, 1, 1, 4, 2), "c": (4, 3, 2, 2, 3)}


def on_cuda(dtype, **kwargs):
    loaded = tiny_model(dtype=dtype, **kwargs)
    loaded.model.to("cuda")
    return loaded


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_fp32_on_cuda_gives_the_dense_references_tokens_and_logprobs(layout):
    reference_model = tiny_model(seed=1)
    driver = Driver(on_cuda(torch.float32, seed=1), small_config(layout=layout), chunk=2)
    lives = [
        driver.add(n, p, max_tokens=5, min_loops=1, exit_depths=DEPTHS[n], logprobs=0)
        for n, p in PROMPTS.items()
    ]
    driver.packed(lives)
    for live in lives:
        name = live.spec.request_id
        made = dense_ouro.generate(
            reference_model.model.state_dict(),
            dense_config(reference_model),
            PROMPTS[name],
            DEPTHS[name],
            layout,
            max_tokens=5,
        )
        expected = [
            torch.log_softmax(logits, dim=0)[token].item()
            for logits, token in zip(made.logits, made.tokens, strict=True)
        ]
        assert live.outputs == made.tokens
        assert live.logprobs == pytest.approx(expected, abs=1e-4)


def test_bf16_keeps_close_to_fp32_and_repeats_itself():
    def logprobs(dtype):
        driver = Driver(on_cuda(dtype, seed=1))
        lives = [
            driver.add(n, p, max_tokens=1, min_loops=1, logprobs=0) for n, p in PROMPTS.items()
        ]
        driver.packed(lives)
        return [live.logprobs[0] for live in lives]

    rough = logprobs(torch.bfloat16)
    assert rough == pytest.approx(logprobs(torch.float32), abs=0.05)
    assert rough == logprobs(torch.bfloat16)


def test_sampling_and_gated_exits_are_the_same_packed_and_serial():
    def run(how):
        driver = Driver(on_cuda(torch.float32, seed=2))
        lives = [
            driver.add(n, p, max_tokens=6, exit_threshold=0.7, temperature=0.8, top_p=0.9)
            for n, p in PROMPTS.items()
        ]
        getattr(driver, how)(lives)
        return completions(lives)

    assert run("packed") == run("serial")


def test_a_snapshot_returns_to_another_row_and_other_blocks():
    def run(*, moves):
        driver = Driver(on_cuda(torch.float32, seed=2))
        live = driver.add("a", PROMPTS["a"], max_tokens=4, exit_threshold=0.7)
        while not live.is_finished:
            if moves:
                driver.runner.park(live.spec, live.state_row)
                driver.runner.offload(live.spec, live.block_table)
                driver.runner._started.cache.keys[
                    [b for plane in live.block_table for b in plane]
                ] = float("nan")
                live.state_row = (live.state_row + 1) % 4
                live.block_table = tuple(reversed(live.block_table))
                driver.runner.unpark(live.spec, live.state_row)
                driver.runner.reload(live.spec, live.block_table)
            driver.run([live])
        return completions([live])

    assert run(moves=True) == run(moves=False)


def test_the_pool_takes_its_share_of_the_free_memory_at_most():
    free_bytes, _ = torch.cuda.mem_get_info()
    runner = TorchRunner(on_cuda(torch.bfloat16))
    _, config = runner.start(EngineConfig(cache=CacheConfig(gpu_memory_utilization=0.5)))
    assert config.cache.num_blocks == 8 * 4 * 8
    assert torch.cuda.memory_allocated() < free_bytes


def test_a_runner_made_again_in_the_same_process_gets_the_same_plan():
    plans, left = [], []
    for _ in range(3):
        runner = TorchRunner(on_cuda(torch.bfloat16))
        runner.start(small_config(num_blocks=None, cuda_graphs=True))
        plans.append(runner.memory_plan)
        runner.close()
        del runner
        gc.collect()
        torch.cuda.empty_cache()
        left.append(torch.cuda.memory_allocated())
    assert len({(plan.num_blocks, plan.working) for plan in plans}) == 1
    # The first start loads the libraries; from then on nothing may be left behind.
    assert left[2] <= left[1]


def test_a_pool_that_does_not_fit_says_what_to_lower():
    runner = TorchRunner(on_cuda(torch.bfloat16))
    with pytest.raises(ConfigError, match=r"cache.num_blocks=.* cannot be had on cuda.*lower it"):
        runner.start(EngineConfig(cache=CacheConfig(num_blocks=2**40)))


WAYS = {
    "torch": {"attention_backend": "torch"},
    "kernels": {"attention_backend": "triton"},
    "graphs": {"cuda_graphs": True},
    "invariant": {"batch_invariant": True},
    "invariant graphs": {"batch_invariant": True, "cuda_graphs": True},
}


def generated(way, dtype, *, how="packed", layout="last_exited", seed=2):
    driver = Driver(on_cuda(dtype, seed=seed), small_config(layout=layout, **WAYS[way]), chunk=3)
    assert driver.config.execution.cuda_graphs == ("graphs" in way)
    lives = [
        driver.add(name, prompt, max_tokens=8, min_loops=1, exit_threshold=0.7, logprobs=0, **own)
        for (name, prompt), own in zip(
            PROMPTS.items(), ({}, {"temperature": 0.8, "top_p": 0.9}, {"temperature": 1.2}),
            strict=True,
        )
    ]  # fmt: skip
    getattr(driver, how)(lives)
    return completions(lives), [live.logprobs for live in lives]


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "torch"])
def test_every_way_to_compute_gives_the_same_tokens_and_depths_in_fp32(way, layout):
    expected, expected_logprobs = generated("torch", torch.float32, layout=layout)
    got, logprobs = generated(way, torch.float32, layout=layout)
    assert got == expected
    assert logprobs == [pytest.approx(own, abs=1e-4) for own in expected_logprobs]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("way", ["invariant", "invariant graphs"])
def test_batch_invariant_results_are_the_same_bits_packed_and_serial(way, dtype):
    assert generated(way, dtype, how="packed") == generated(way, dtype, how="serial")


@pytest.mark.parametrize("way", ["torch", "kernels", "graphs"])
def test_the_demo_model_computes_on_a_gpu_what_it_computes_on_a_cpu(way):
    texts = list(evaluation_problems(500).texts())
    wanted = dict(texts)
    params = SamplingParams(exit_threshold=0.9, min_loops=1)

    def served(device, dtype, execution):
        config = EngineConfig(
            scheduler=SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=512),
            execution=execution,
        )
        with LLM("demo", device=device, dtype=dtype, config=config) as llm:
            return llm.generate(list(wanted), params)

    def exact(outputs):
        right = [o.text == answer for o, answer in zip(outputs, wanted.values(), strict=True)]
        return sum(right) / len(right)

    cpu = served("cpu", "float32", ExecutionConfig())
    gpu = served("cuda", "float32", ExecutionConfig(**WAYS[way]))
    assert [(o.token_ids, o.exit_depths) for o in gpu] == [
        (o.token_ids, o.exit_depths) for o in cpu
    ]
    rough = served("cuda", "bfloat16", ExecutionConfig(**WAYS[way]))
    assert abs(exact(rough) - exact(cpu)) <= 0.01


def test_huginn_on_cuda_gives_its_references_tokens_and_logprobs():
    loaded = tiny_huginn(seed=2)
    prompt, depths = PROMPTS["a"], DEPTHS["a"]
    made = dense_huginn.generate(
        loaded.model.state_dict(), reference_config(loaded), prompt, depths, max_tokens=5, seed=7
    )
    expected = [
        torch.log_softmax(logits, dim=0)[token].item()
        for logits, token in zip(made.logits, made.tokens, strict=True)
    ]
    loaded.model.to("cuda")
    config = EngineConfig(
        scheduler=SchedulerConfig(prefill_chunk_size=2),
        cache=CacheConfig(num_blocks=50, block_size=4),
        exit=ExitConfig(mode="trace"),
    )
    params = SamplingParams(max_tokens=5, min_loops=1, exit_depths=depths, seed=7, logprobs=0)
    with Engine(TorchRunner(loaded), config) as engine:
        assert engine.config.execution.attention_backend == "torch"
        engine.add_request("a", prompt, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                last = output
    assert last.token_ids == made.tokens
    assert last.logprobs == pytest.approx(expected, abs=1e-4)
