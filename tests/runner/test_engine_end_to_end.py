"""TorchRunner under the real engine: refill, chunks, aborts, and a device that fails."""

import math

import pytest
from driving import small_config, tiny_model
from reference import dense_ouro
from reference.dense_ouro import ExitRule

from rlt_fsm import Engine, EngineConfig, ExitConfig, SamplingParams, SchedulerConfig, WorkKey
from runner.torch_runner import TorchRunner


def engine_of(loaded, config=None):
    return Engine(TorchRunner(loaded), config or small_config())


def drain(engine):
    """Every request's last output by id, and the batches that ran."""
    finals, batches = {}, []
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                finals[output.request_id] = output
        batches.append(engine.last_schedule.batch)
    return finals, [batch for batch in batches if batch is not None]


def test_a_constant_hazard_leaves_at_4_2_2_under_the_engine():
    with engine_of(tiny_model(gate_bias=math.log(0.4 / 0.6))) as engine:
        engine.add_request("a", [5, 6], SamplingParams(max_tokens=3, exit_threshold=0.6))
        finals, _ = drain(engine)
    assert finals["a"].exit_depths == [4, 2, 2]


def test_rows_of_different_depths_share_batches_and_agree_with_the_reference():
    loaded = tiny_model(seed=12)
    shape = {name: getattr(loaded.config, name) for name in loaded.config.__struct_fields__}
    wanted = {
        "fast": ([5, 6, 7], (4, 2, 2, 2, 2, 2)),
        "slow": ([8], (4, 4, 4, 3, 4, 4)),
        "mid": ([9] * 11, (4, 3, 2, 4, 2, 3)),
    }
    with engine_of(loaded) as engine:
        for name, (prompt, depths) in wanted.items():
            engine.add_request(name, prompt, SamplingParams(max_tokens=6, exit_depths=depths))
        finals, batches = drain(engine)
        assert engine.state.pool.free == engine.config.cache.num_blocks
    mixed = [{r.depth for r in b.rows} for b in batches if b.works == (WorkKey.DECODE_RECURRENT,)]
    assert any(len(depths) > 1 for depths in mixed)
    for name, (prompt, depths) in wanted.items():
        reference = dense_ouro.generate(
            loaded.model.state_dict(), shape, prompt, depths, max_tokens=6
        )
        assert finals[name].token_ids == reference.tokens
        assert finals[name].exit_depths == list(depths)


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_a_reused_id_and_reused_blocks_give_the_same_completion(layout):
    loaded = tiny_model(seed=13)
    params = SamplingParams(max_tokens=5, exit_threshold=0.6)
    config = small_config(layout=layout, num_blocks=24, max_num_seqs=2)
    with engine_of(loaded, config) as engine:
        engine.add_request("a", [3, 4, 5], params)
        first, _ = drain(engine)
        engine.add_request("noise", [9] * 8, params)
        drain(engine)
        engine.add_request("a", [3, 4, 5], params)
        again, _ = drain(engine)
    assert again["a"].token_ids == first["a"].token_ids
    assert again["a"].exit_depths == first["a"].exit_depths


def test_an_abort_at_any_step_leaves_the_others_tokens_alone():
    loaded = tiny_model(seed=14)
    params = SamplingParams(max_tokens=4, exit_threshold=0.6)

    def run(abort_at):
        with engine_of(loaded, small_config(max_num_seqs=2)) as engine:
            for name in ("a", "b", "c"):
                engine.add_request(name, [ord(name) % 60, 7], params)
            finals = {}
            while engine.has_unfinished_requests():
                if engine.current_step == abort_at:
                    engine.abort_request("b")
                finals |= {o.request_id: o.token_ids for o in engine.step() if o.finished}
            assert engine.state.pool.free == engine.config.cache.num_blocks
        return finals

    expected = run(abort_at=None)
    for step in range(0, 20, 3):
        finals = run(abort_at=step)
        assert {name: finals[name] for name in ("a", "c")} == {
            name: expected[name] for name in ("a", "c")
        }


def test_a_device_failure_ends_its_batch_and_the_engine_serves_on(monkeypatch):
    loaded = tiny_model(seed=15)
    params = SamplingParams(max_tokens=3)
    with engine_of(loaded) as engine:
        engine.add_request("a", [3, 4], params)
        before, _ = drain(engine)
        with monkeypatch.context() as broken:
            broken.setattr(loaded.model, "coda", lambda _: 1 / 0)
            engine.add_request("a", [3, 4], params)
            failed, _ = drain(engine)
        assert failed["a"].finish_reason == "error"
        engine.add_request("a", [3, 4], params)
        after, _ = drain(engine)
        assert after["a"].token_ids == before["a"].token_ids


def test_traced_depths_are_followed_whatever_the_gate_says():
    config = EngineConfig(scheduler=SchedulerConfig(max_num_seqs=2), exit=ExitConfig(mode="trace"))
    with engine_of(tiny_model(gate_bias=100.0), config) as engine:
        params = SamplingParams(max_tokens=4, exit_depths=(4, 3, 2, 4), exit_threshold=0.5)
        engine.add_request("a", [5], params)
        finals, _ = drain(engine)
    assert finals["a"].exit_depths == [4, 3, 2, 4]


def test_the_reference_rule_and_the_engines_rule_agree_on_every_threshold():
    loaded = tiny_model(seed=16)
    shape = {name: getattr(loaded.config, name) for name in loaded.config.__struct_fields__}
    thresholds = (0.0, 0.45, 0.6, 0.8, 0.95, 1.0)
    with engine_of(loaded, small_config(max_num_seqs=3)) as engine:
        for threshold in thresholds:
            params = SamplingParams(max_tokens=6, exit_threshold=threshold, min_loops=1)
            engine.add_request(str(threshold), [7, 8, 9], params)
        finals, _ = drain(engine)
    for threshold in thresholds:
        rule = ExitRule(threshold, min_loops=1)
        made = dense_ouro.generate(loaded.model.state_dict(), shape, [7, 8, 9], rule, max_tokens=6)
        final = finals[str(threshold)]
        assert (final.token_ids, final.exit_depths) == (made.tokens, made.exit_depths)
