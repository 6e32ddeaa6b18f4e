"""The runner against the dense reference, and against itself: packed, chunked, serial."""

import math

import pytest
import torch
from driving import Driver, completions, dense_config, small_config, tiny_model
from reference import dense_ouro
from reference.dense_ouro import ExitRule

from rlt_fsm.batch import Batch
from rlt_fsm.config import EngineConfig, ExecutionConfig, ExitConfig
from rlt_fsm.errors import ConfigError
from rlt_fsm.states import Operation, WorkKey
from runner.torch_runner import TorchRunner

LAYOUTS = ["last_exited", "shared"]
PROMPTS = {"a": [5, 9, 2, 33, 17], "b": [7], "c": [1, 50, 3]}


def dense(loaded, prompt, depths_or_rule, layout="last_exited", **kwargs):
    return dense_ouro.generate(
        loaded.model.state_dict(), dense_config(loaded), prompt, depths_or_rule, layout, **kwargs
    )


def hidden_of(driver, live):
    return driver.runner._started.resident.hidden[live.state_row]


def assert_same_cache(driver, live, reference):
    """Every written position of every plane holds the reference's keys and values."""
    cache = driver.runner._started.cache
    size = cache.geometry.block_size
    for (plane, layer, position), (k, v) in reference.cache.entries.items():
        block = live.block_table[plane][position // size]
        torch.testing.assert_close(cache.keys[block, layer, position % size], k, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            cache.values[block, layer, position % size], v, atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_forced_depths_give_the_dense_references_states_logits_and_cache(layout):
    loaded = tiny_model(seed=1)
    depths = {"a": (4, 2, 3, 1, 4), "b": (4, 1, 1, 4, 2), "c": (4, 3, 2, 2, 3)}
    driver = Driver(loaded, small_config(layout=layout, block_size=2), chunk=2)
    lives = [
        driver.add(n, p, max_tokens=5, min_loops=1, exit_depths=depths[n], logprobs=0)
        for n, p in PROMPTS.items()
    ]
    driver.packed(lives)
    for live in lives:
        name = live.spec.request_id
        reference = dense(loaded, PROMPTS[name], depths[name], layout, max_tokens=5)
        assert live.outputs == reference.tokens
        assert live.exit_depths == list(depths[name])
        expected = [
            torch.log_softmax(logits, dim=0)[token].item()
            for logits, token in zip(reference.logits, reference.tokens, strict=True)
        ]
        assert live.logprobs == pytest.approx(expected, abs=1e-5)
        logits = loaded.model.coda(hidden_of(driver, live).unsqueeze(0))[0]
        torch.testing.assert_close(logits, reference.logits[-1], atol=1e-5, rtol=0)
        assert_same_cache(driver, live, reference)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.7, 1.0])
def test_gated_exits_follow_the_dense_reference(layout, threshold):
    loaded = tiny_model(seed=2)
    driver = Driver(loaded, small_config(layout=layout))
    live = driver.add("a", PROMPTS["a"], max_tokens=8, min_loops=1, exit_threshold=threshold)
    driver.packed([live])
    rule = ExitRule(threshold=threshold, min_loops=1)
    reference = dense(loaded, PROMPTS["a"], rule, layout, max_tokens=8)
    assert live.outputs == reference.tokens
    assert live.exit_depths == reference.exit_depths


def test_the_gates_of_the_random_model_do_leave_at_different_depths():
    """Else the tests above would compare nothing."""
    rule = ExitRule(threshold=0.7, min_loops=1)
    reference = dense(tiny_model(seed=2), PROMPTS["a"], rule, max_tokens=8)
    assert len(set(reference.exit_depths)) > 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_chunked_and_serial_runs_give_the_same_tokens_and_depths(layout, dtype):
    def run(how, chunk, **execution):
        driver = Driver(
            tiny_model(seed=1, dtype=dtype),
            small_config(layout=layout, block_size=3, **execution),
            chunk=chunk,
        )
        lives = [
            driver.add(name, prompt, max_tokens=6, exit_threshold=threshold, seed=k, **sampling)
            for k, (name, prompt, threshold, sampling) in enumerate(
                (
                    ("a", [*range(3, 20)], 0.0, {}),
                    ("b", [7], 1.0, {"temperature": 0.8}),
                    ("c", [1, 50, 3], 0.7, {"temperature": 0.8, "top_k": 9, "top_p": 0.9}),
                )
            )
        ]
        getattr(driver, how)(lives)
        return completions(lives)

    expected = run("serial", 128)
    assert run("packed", 128) == expected
    assert run("packed", 2) == expected
    assert run("serial", 1) == expected
    assert run("packed", 4, batch_invariant=True) == expected


def test_a_packed_run_of_thresholds_0_1_and_0_7_equals_serial_runs_with_these_depths():
    def run(how):
        driver = Driver(tiny_model(gate_bias=math.log(0.4 / 0.6)))
        lives = [
            driver.add(name, prompt, max_tokens=4, exit_threshold=threshold)
            for (name, prompt), threshold in zip(PROMPTS.items(), (0.0, 1.0, 0.7), strict=True)
        ]
        getattr(driver, how)(lives)
        return completions(lives)

    packed = run("packed")
    assert packed == run("serial")
    # 1 - 0.6^3 = 0.784 passes 0.7 after three loops
    assert [depths for _, depths in packed] == [[4, 2, 2, 2], [4, 4, 4, 4], [4, 3, 3, 3]]


def gated_depths(gate_bias, config=None, **params):
    driver = Driver(tiny_model(gate_bias=gate_bias), config)
    live = driver.add("a", [5, 6], max_tokens=3, **params)
    driver.packed([live])
    return live.exit_depths


def test_a_constant_hazard_of_0_4_and_threshold_0_6_give_depths_4_2_2():
    assert gated_depths(math.log(0.4 / 0.6), exit_threshold=0.6) == [4, 2, 2]


def test_a_saturated_gate_and_threshold_1_give_full_depth_always():
    assert gated_depths(100.0, exit_threshold=1.0, min_loops=1) == [4, 4, 4]


def test_threshold_0_leaves_exactly_at_min_loops():
    assert gated_depths(-100.0, exit_threshold=0.0, min_loops=3) == [4, 3, 3]


def test_max_loops_ends_a_token_whose_gate_stays_shut():
    assert gated_depths(-100.0, exit_threshold=0.5, max_loops=3) == [4, 3, 3]


def test_a_delayed_gate_leaves_one_loop_later():
    bias, delayed = math.log(0.3 / 0.7), EngineConfig(exit=ExitConfig(mode="ouro_delayed"))
    assert gated_depths(bias, exit_threshold=0.5) == [4, 2, 2]
    assert gated_depths(bias, delayed, exit_threshold=0.5) == [4, 3, 3]


def test_a_request_draws_the_same_tokens_alone_and_among_others():
    def tokens(mates):
        driver = Driver(tiny_model(seed=3))
        lives = [
            driver.add("a", [5, 6, 7], max_tokens=8, temperature=0.9, seed=11),
            *(
                driver.add(f"m{k}", [k + 1] * (k + 1), max_tokens=5, temperature=1.5, seed=k)
                for k in range(mates)
            ),
        ]
        driver.packed(lives)
        return lives[0].outputs

    assert tokens(3) == tokens(0)


def test_one_row_per_call_gives_bit_equal_states_in_any_batch():
    def state(mates):
        driver = Driver(tiny_model(seed=3), small_config(batch_invariant=True), chunk=3 + mates)
        lives = [driver.add("a", [5, 6, 7, 8], max_tokens=3, min_loops=1, exit_depths=(4, 2, 3))]
        lives += [driver.add(f"m{k}", [k + 1] * 9, max_tokens=3) for k in range(mates)]
        driver.packed(lives)
        return hidden_of(driver, lives[0]).clone()

    assert torch.equal(state(3), state(0))


def test_blocks_and_rows_of_an_ended_request_serve_the_next_one():
    driver = Driver(tiny_model(seed=4))
    fresh = Driver(tiny_model(seed=4))
    first = driver.add("a", [9] * 10, max_tokens=6, exit_threshold=0.3)
    driver.packed([first])
    driver.end(first)
    again = driver.add("a", [3, 4], max_tokens=6, exit_threshold=0.3)
    alone = fresh.add("a", [3, 4], max_tokens=6, exit_threshold=0.3)
    assert again.spec.generation == 2
    assert set(again.block_table[0]) <= set(first.block_table[0])
    driver.packed([again])
    fresh.packed([alone])
    assert completions([again]) == completions([alone])


def test_history_that_was_never_written_fails_the_batch():
    driver = Driver()
    live = driver.add("a", [3, 4, 5], max_tokens=2)
    live.prefilled = 1
    with pytest.raises(Exception, match="uninitialised history"):
        driver.run([live])
    driver.runner.release(live.spec)
    live.prefilled = 0
    driver.packed([live])
    assert live.is_finished


def test_a_released_request_starts_over_with_nothing_written():
    driver = Driver()
    live = driver.add("a", [3, 4, 5, 6], max_tokens=2)
    driver.packed([live])
    driver.runner.release(live.spec)
    driver.chunk = 1
    live.prefilled, live.work = 0, WorkKey.PROMPT_ATOMIC
    driver.run([live])
    assert driver.runner._started.cache.frontier(("a", 1), 3) == 1


def test_start_resolves_every_automatic_value():
    runner = TorchRunner(tiny_model(), max_model_len=100)
    facts, config = runner.start(EngineConfig())
    assert config.cache.num_blocks == 8 * 4 * math.ceil(100 / 16)
    assert config.execution.attention_backend == "torch"
    assert config.exit.mode == "ouro"
    assert facts.name == "tiny"
    assert (facts.depths, facts.planes, facts.vocab_size) == (4, 4, 64)
    assert (facts.max_model_len, facts.eos_token_ids) == (100, ())
    assert runner.start(small_config(layout="shared"))[0].planes == 1


def test_a_resolved_config_starts_the_same_pool_again():
    runner = TorchRunner(tiny_model())
    _, config = runner.start(small_config())
    assert runner.start(config)[1] == config


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        ({"attention_backend": "triton"}, "execution.attention_backend='triton'"),
        ({"cuda_graphs": True}, "execution.cuda_graphs"),
    ],
)
def test_what_does_not_run_here_is_refused_at_the_start(execution, words):
    with pytest.raises(ConfigError, match=words):
        TorchRunner(tiny_model()).start(EngineConfig(execution=ExecutionConfig(**execution)))


@pytest.mark.parametrize("context", [0, 129])
def test_a_context_the_model_does_not_have_is_refused(context):
    with pytest.raises(ConfigError, match=rf"max_model_len={context}: .* from 1 to 128"):
        TorchRunner(tiny_model(), max_model_len=context)


def test_work_that_this_runner_does_not_know_fails_the_batch():
    driver = Driver()
    with pytest.raises(NotImplementedError, match="SPECULATIVE does not run here"):
        driver.runner.submit(Batch(1, 1, Operation.RECURRENT, (WorkKey.SPECULATIVE,), (), "test"))


def test_close_gives_memory_back_and_may_be_called_twice():
    runner = TorchRunner(tiny_model())
    runner.start(small_config())
    runner.close()
    runner.close()
    assert runner._on is None
