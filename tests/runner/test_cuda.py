"""The same runner on a CUDA device; skipped where there is none."""

import pytest
import torch
from driving import Driver, completions, dense_config, small_config, tiny_model
from reference import dense_ouro

from rlt_fsm.config import CacheConfig, EngineConfig
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
