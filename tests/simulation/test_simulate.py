"""simulate: clean seeds are clean, and every kind of bug is found, named and made small."""

from collections import Counter

import pytest
from judging import judge
from msgspec.structs import replace

from rlt_fsm import Engine, SamplingParams, WorkloadError
from rlt_fsm import interpret as interpretation
from rlt_fsm.blocks import BlockPool
from rlt_fsm.scheduler import Scheduler
from rlt_fsm.states import FinishReason
from rlt_fsm.workload import parse, to_json
from runner.sim import SimRunner
from runner.sim_kv import SimKV
from runner.simulate import check_file, make_small, put_on_trial, simulate
from runner.simulate_workloads import random_workload

SEEDS = range(200)


def test_seeds_are_clean_and_reach_every_kind_of_event():
    result = simulate(SEEDS, judge)
    assert result.failed is None
    assert (result.first, result.end) == (0, 200)
    assert set(result.triggers) == {
        *("open", "close", "submit", "refuse", "admit", "select", "enqueue", "output", "finish"),
        *("abort", "retire", "submit_batch", "complete_batch", "fail_batch", "retire_batch"),
        *("grow", "yield", "offload", "offload_resident", "resume", "rewind", "verdict"),
        *("publish", "evict", "drop", "recover"),
    }
    assert result.events == sum(result.triggers.values())
    assert result.preemptions == sum(result.triggers[t] for t in ("yield", "offload", "rewind"))


def test_a_seed_is_the_same_workload_every_time():
    assert to_json(random_workload(7)) == to_json(random_workload(7))
    assert to_json(random_workload(7)) != to_json(random_workload(8))


def test_a_workload_of_a_seed_survives_being_written_and_read_again():
    for seed in range(50):
        workload = random_workload(seed)
        assert parse(to_json(workload)) == workload


def test_seeds_cover_modes_policies_prefill_kinds_layouts_and_faults():
    configs = [random_workload(seed) for seed in range(300)]
    assert Counter(w.config.scheduler.mode for w in configs).keys() == {
        "refill",
        "no_refill",
        "mixed",
    }
    for is_there in (
        lambda w: w.config.scheduler.policy == "priority",
        lambda w: w.config.scheduler.enable_preemption,
        lambda w: not w.config.execution.atomic_prefill,
        lambda w: w.config.execution.async_scheduling and w.completion is None,
        lambda w: w.completion is not None and w.completion.order == "random",
        lambda w: w.config.cache.layout == "shared",
        lambda w: w.config.cache.incremental_allocation,
        lambda w: w.config.cache.enable_prefix_caching,
        lambda w: w.config.cache.host_snapshot_blocks == 0,
        lambda w: w.config.cache.watermark_ratio > 0,
        lambda w: w.config.scheduler.min_coda_batch_size > 1,
        lambda w: w.config.exit.mode == "trace",
        lambda w: len({r.id for r in w.requests}) < len(w.requests),
        lambda w: any(a.fail for a in w.actions),
        lambda w: any(a.abort and a.at is not None for a in w.actions),
        lambda w: any(a.abort and a.when is not None for a in w.actions),
    ):
        assert 0 < sum(map(is_there, configs)) < len(configs)


def test_time_bounds_how_many_seeds_are_run():
    result = simulate(range(1_000_000), judge, seconds=0.0)
    assert (result.first, result.end) == (0, 1)


# ---- bugs --------------------------------------------------------------------------------------


def forget_nothing(patch):
    patch.setattr(SimKV, "release", lambda *_: None)


def sample_by_company(patch):
    sample = SimRunner._sample

    def sample_otherwise(runner, batch):
        result = sample(runner, batch)
        if len(batch.rows) < 2:
            return result
        return replace(result, token_ids=[token % 3 + 1 for token in result.token_ids])

    patch.setattr(SimRunner, "_sample", sample_otherwise)
    patch.setattr(SimKV, "sampled", lambda *_: None)


def one_token_too_many(patch):
    ends = interpretation.finish_reason

    def ends_late(model, spec, outputs, token):
        reason = ends(model, spec, outputs - 1, token)
        return reason if reason is not FinishReason.STOP else None

    patch.setattr(interpretation, "finish_reason", ends_late)


def change_state_without_a_fact(patch):
    plan = Scheduler.plan

    def plan_and_count(scheduler):
        scheduler._state.prelude_batches_since_prompt_recurrent += 1
        return plan(scheduler)

    patch.setattr(Scheduler, "plan", plan_and_count)
    patch.setattr(Engine, "close", Engine.close.__wrapped__)  # which compares for every test


def run_out_of_blocks(patch):
    def peek(pool, count):
        assert count < 9, "no nine blocks are left"
        return tuple(pool._free[: -count - 1 : -1]) if count else ()

    patch.setattr(BlockPool, "peek", peek)


@pytest.mark.parametrize(
    ("bug", "kinds"),
    [
        (forget_nothing, {"drain", "stopped-AssertionError-sim_kv._place"}),
        (sample_by_company, {"outputs"}),
        (one_token_too_many, {"S8"}),
        (change_state_without_a_fact, {"fold"}),
        (run_out_of_blocks, {"stopped-AssertionError-test_simulate.peek"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_is_found_and_a_small_workload_shows_it(bug, kinds, monkeypatch):
    with monkeypatch.context() as patch:
        bug(patch)
        result = simulate(range(40, 90), judge, make=random_workload)
        failed = result.failed
        assert failed is not None
        assert result.end == failed.seed + 1
        assert failed.failures[0].kind in kinds
        assert len(failed.small.requests) <= 2
        assert len(to_json(failed.small)) < len(to_json(failed.original))
        again = put_on_trial(parse(to_json(failed.small)), judge)
        assert again.failures[0].kind == failed.failures[0].kind
    assert put_on_trial(failed.small, judge).failures == []


def test_live_requests_after_max_steps_are_a_stall():
    result = simulate(range(3), judge, max_steps=3)
    failed = result.failed
    assert failed is not None
    assert [failure.kind for failure in failed.failures] == ["stall"]
    assert "still live after 3 steps" in failed.failures[0].message
    assert len(failed.small.requests) == 1


def test_making_small_is_deterministic(monkeypatch):
    run_out_of_blocks(monkeypatch)
    seed = simulate(range(40, 90), judge).failed.seed
    small = [make_small(random_workload(seed), judge)[0] for _ in range(2)]
    assert to_json(small[0]) == to_json(small[1])


# ---- files -------------------------------------------------------------------------------------


def test_a_file_is_put_on_trial_as_a_seed_is(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(to_json(random_workload(3)))
    assert check_file(str(path), judge) == put_on_trial(random_workload(3), judge)


def test_a_file_for_a_real_model_is_refused(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(to_json(replace(random_workload(3), model="demo")))
    with pytest.raises(WorkloadError, match="only 'sim' is simulated"):
        check_file(str(path), judge)


def test_a_workload_whose_requests_are_all_refused_is_clean():
    refused = replace(random_workload(3).requests[0], id="no", params=SamplingParams(max_tokens=0))
    workload = replace(random_workload(3), requests=(refused,), actions=())
    trial = put_on_trial(workload, judge)
    assert (trial.failures, trial.steps) == ([], 0)
