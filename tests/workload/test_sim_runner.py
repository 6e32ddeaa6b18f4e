"""SimRunner through the engine: what it draws, what it does not depend on, what it resolves."""

import itertools

import pytest

from rlt_fsm import (
    CacheConfig,
    Engine,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    SamplingParams,
    SchedulerConfig,
)
from runner.sim import SimRunner

MIXED = SamplingParams(max_tokens=8, exit_threshold=0.6, ignore_eos=True)


def outputs_of(runner, requests, config=None):
    """Run (id, prompt, params) requests together; {id: (tokens, exit depths)}."""
    last = {}
    with EventLog.memory() as log, Engine(runner, config or EngineConfig(), log) as engine:
        for request_id, prompt, params in requests:
            engine.add_request(request_id, prompt, params)
        while engine.has_unfinished_requests():
            last |= {output.request_id: output for output in engine.step()}
    return {key: (output.token_ids, output.exit_depths) for key, output in last.items()}


def test_draws_never_change():
    assert outputs_of(SimRunner(), [("a", [1, 2, 3], MIXED)]) == {
        "a": ([350, 205, 469, 343, 161, 396, 480, 168], [4, 2, 4, 2, 2, 2, 2, 2])
    }


def test_draws_do_not_depend_on_ids_batch_mates_order_or_batch_sizes():
    requests = [(f"r{i}", [i, i + 1, i + 2], MIXED) for i in range(1, 6)]
    alone = {}
    for request in requests:
        alone |= outputs_of(SimRunner(), [request])
    for seqs, tokens in itertools.product((1, 3, 8), (1, 5, 128)):
        scheduler = SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=tokens)
        config = EngineConfig(scheduler=scheduler)
        assert outputs_of(SimRunner(), requests, config) == alone
        assert outputs_of(SimRunner(), requests[::-1], config) == alone


def test_draws_depend_on_seed_and_prompt():
    base = outputs_of(SimRunner(), [("a", [1, 2, 3], MIXED)])
    other_seed = SamplingParams(max_tokens=8, exit_threshold=0.6, ignore_eos=True, seed=1)
    assert outputs_of(SimRunner(), [("a", [1, 2, 3], other_seed)]) != base
    assert outputs_of(SimRunner(), [("a", [1, 2, 4], MIXED)]) != base


def test_tokens_do_not_depend_on_depth():
    full = SamplingParams(max_tokens=8, ignore_eos=True)
    (tokens, depths) = outputs_of(SimRunner(), [("a", [1, 2, 3], full)])["a"]
    assert depths == [4] * 8
    assert tokens == outputs_of(SimRunner(), [("a", [1, 2, 3], MIXED)])["a"][0]


def test_eos_is_never_drawn():
    params = SamplingParams(max_tokens=400)
    runner = SimRunner(vocab_size=3)
    tokens, _ = outputs_of(runner, [("a", [1], params)])["a"]
    assert len(tokens) == 400
    assert set(tokens) == {1, 2}


@pytest.mark.parametrize("min_loops", [1, 2, 3])
def test_threshold_zero_leaves_at_min_loops(min_loops):
    params = SamplingParams(max_tokens=6, exit_threshold=0.0, min_loops=min_loops)
    assert outputs_of(SimRunner(), [("a", [1], params)])["a"][1] == [4] + [min_loops] * 5


def test_a_higher_threshold_never_leaves_earlier():
    depths = [
        outputs_of(
            SimRunner(depths=6),
            [("a", [5, 6], SamplingParams(max_tokens=40, exit_threshold=threshold / 10))],
        )["a"][1]
        for threshold in range(11)
    ]
    for lower, higher in itertools.pairwise(depths):
        assert all(a <= b for a, b in zip(lower, higher, strict=True))
    assert len(set(depths[6])) > 2


def test_forced_depths_win_over_the_gate():
    params = SamplingParams(max_tokens=4, exit_threshold=0.0, exit_depths=(4, 3, 2, 4))
    assert outputs_of(SimRunner(), [("a", [1], params)])["a"][1] == [4, 3, 2, 4]


def test_a_script_puts_tokens_where_it_says_and_no_stop_id_elsewhere():
    every_second = tuple(range(2, 16, 2))
    params = SamplingParams(max_tokens=12, stop_token_ids=every_second)
    runner = SimRunner(vocab_size=16, script={("a", 1): {7: 4}})
    tokens, _ = outputs_of(runner, [("a", [1], params)])["a"]
    assert tokens[7] == 4
    assert len(tokens) == 8
    assert all(token % 2 for token in tokens[:7])


def test_without_a_script_a_drawn_stop_id_stops():
    (tokens, _) = outputs_of(SimRunner(), [("a", [1, 2, 3], MIXED)])["a"]
    stopping = SamplingParams(max_tokens=8, stop_token_ids=(tokens[3],))
    assert outputs_of(SimRunner(), [("a", [1, 2, 3], stopping)])["a"][0] == tokens[:4]


def test_logprobs_come_where_they_are_asked_for():
    with EventLog.memory() as log, Engine(SimRunner(), EngineConfig(), log) as engine:
        engine.add_request("with", [1], SamplingParams(max_tokens=2, logprobs=0))
        engine.add_request("without", [1], SamplingParams(max_tokens=2))
        last = {}
        while engine.has_unfinished_requests():
            last |= {output.request_id: output for output in engine.step()}
    assert last["without"].logprobs is None
    assert last["with"].logprobs == pytest.approx([-6.2363695902] * 2)


def test_automatic_values_are_resolved_at_start():
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=3),
        cache=CacheConfig(block_size=16),
        execution=ExecutionConfig(),
    )
    facts, resolved = SimRunner(max_model_len=100).start(config)
    assert (facts.name, facts.depths, facts.planes, facts.eos_token_ids) == ("sim", 4, 4, (0,))
    assert resolved.cache.num_blocks == 3 * 7 * 4
    assert resolved.exit.mode == "ouro"
    assert resolved.execution.attention_backend == "torch"


def test_the_shared_layout_has_one_plane():
    config = EngineConfig(cache=CacheConfig(layout="shared"))
    facts, resolved = SimRunner(max_model_len=100).start(config)
    assert facts.planes == 1
    assert resolved.cache.num_blocks == 8 * 7
    assert outputs_of(SimRunner(), [("a", [1, 2, 3], MIXED)], config) == outputs_of(
        SimRunner(), [("a", [1, 2, 3], MIXED)]
    )


def test_unless_told_otherwise_every_seat_can_hold_the_longest_request():
    config = EngineConfig(scheduler=SchedulerConfig(max_num_seqs=2))
    with EventLog.memory() as log, Engine(SimRunner(max_model_len=50), config, log) as engine:
        for name in ("a", "b"):
            engine.add_request(name, [1] * 31, SamplingParams(max_tokens=20))
        engine.step()
        assert engine.state.slots_held == 2
