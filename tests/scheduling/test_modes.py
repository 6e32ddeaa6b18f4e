"""Which batches the modes form, and in which order."""

import pytest
from observed import SPLIT, URGENT, observed

from rlt_fsm import ConfigError, EngineConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.config import SpeculativeConfig, validate

MODES = ["refill", "no_refill", "mixed"]
TOGETHER = [
    "PROMPT_ATOMIC fast[0:2) slow[0:2)",
    "DECODE_CODA fast slow",
    "DECODE_PRELUDE fast slow",
    "DECODE_RECURRENT fast@0 slow@0",
    "DECODE_RECURRENT fast@1 slow@1",
]


def execution(mode):
    return SPLIT if mode == "mixed" else {}


def two_speeds(mode):
    """Two requests of three outputs; one leaves the loop after two loops, the other after four."""
    with observed(scheduler={"mode": mode}) as seen:
        seen.add("fast", 2, 3, max_loops=2)
        seen.add("slow", 2, 3)
        seen.drain()
    return seen.batches


def test_refill_lets_a_row_that_left_the_loop_rejoin_the_batch_at_once():
    assert two_speeds("refill") == [
        *TOGETHER,
        "DECODE_CODA fast",
        "DECODE_PRELUDE fast",
        "DECODE_RECURRENT slow@2 fast@0",
        "DECODE_RECURRENT slow@3 fast@1",
        "DECODE_CODA slow fast",
        "DECODE_PRELUDE slow",
        *(f"DECODE_RECURRENT slow@{depth}" for depth in range(4)),
        "DECODE_CODA slow",
    ]


def test_no_refill_lets_a_cohort_loop_until_its_last_row_has_left():
    cohort = [*TOGETHER[2:], "DECODE_RECURRENT slow@2", "DECODE_RECURRENT slow@3",
              "DECODE_CODA fast slow"]  # fmt: skip
    assert two_speeds("no_refill") == [*TOGETHER[:2], *cohort, *cohort]


@pytest.mark.parametrize("mode", ["refill", "mixed"])
def test_a_coda_waits_for_its_batch_only_while_loops_are_running(mode):
    with observed(
        scheduler={"mode": mode, "min_coda_batch_size": 2}, execution=execution(mode)
    ) as s:
        s.add("fast", 1, 2, max_loops=1)
        s.add("slow", 1, 2)
        s.until("fast", "QUEUED:DECODE_CODA")  # after the prompt
        s.until("fast", "QUEUED:DECODE_RECURRENT")
        s.until("fast", "QUEUED:DECODE_CODA")
        assert [s.step() for _ in range(4)] == [
            "DECODE_RECURRENT slow@1",
            "DECODE_RECURRENT slow@2",
            "DECODE_RECURRENT slow@3",
            "DECODE_CODA fast slow",
        ]


@pytest.mark.parametrize("mode", MODES)
def test_a_single_request_never_waits_for_a_larger_coda_batch(mode):
    with observed(
        scheduler={"mode": mode, "min_coda_batch_size": 50}, execution=execution(mode)
    ) as s:
        s.add("a", 2, 3)
        s.drain()
        assert len(s.results["a"].token_ids) == 3


def test_eos_as_the_first_token_ends_a_request_after_its_prompt_and_one_coda():
    with observed(script={("a", 1): {0: 0}}) as seen:
        seen.add("a", 3, 8)
        seen.drain()
        assert seen.batches == ["PROMPT_ATOMIC a[0:3)", "DECODE_CODA a"]
        assert seen.results["a"].token_ids == [0]
        assert seen.results["a"].finish_reason == "stop"


@pytest.mark.parametrize("mode", MODES)
def test_a_long_decode_goes_on_among_short_arrivals(mode):
    with observed(scheduler={"mode": mode, "max_num_seqs": 2}, execution=execution(mode)) as seen:
        seen.add("long", 2, 40)
        seen.until("long", "QUEUED:DECODE_RECURRENT")
        start = len(seen.batches)
        for number in range(12):
            seen.add(f"short{number}", 2, 1)
        while len(seen.finished) < 12:
            seen.step()
        among = seen.batches[start:]
        assert sum("RECURRENT" in batch and "long@" in batch for batch in among) >= 11


# ---- turns that form no batch ------------------------------------------------------------------


def test_a_prompt_without_blocks_leaves_the_turn_to_loops_and_is_not_counted_as_a_prompt_batch():
    scheduler = {"enable_preemption": True, "prefill_chunk_size": 1}
    pool = {"num_blocks": 6, "block_size": 1, "layout": "shared", "incremental_allocation": True}
    with observed(scheduler=scheduler, cache=pool, depths=1) as seen:
        seen.add("better", 1, 5)
        seen.add("worse", 4, 1)
        state = seen.engine.state
        while seen.free:
            seen.step()
        assert seen.batches[-1] == "DECODE_PRELUDE better"
        assert state.prefill_batches_since_recurrent == 0  # its turn: prompts go before loops
        assert seen.step() == "DECODE_RECURRENT better@0"
        assert seen.engine.last_schedule.batch.reason == "decode-ready"
        assert state.prefill_batches_since_recurrent == 0
        assert seen.verdicts() == ["worse: blocks need=1 free=0"]


@pytest.mark.parametrize("work", ["DECODE_PRELUDE", "DECODE_CODA"])
def test_a_resumed_request_runs_in_the_step_that_admits_it_in_no_refill(work):
    with observed(scheduler={**URGENT, "mode": "no_refill", "max_num_seqs": 1}) as seen:
        seen.add("low", 2, 3, priority=1)
        seen.until("low", f"QUEUED:{work}")
        seen.add("high", 2, 1)
        seen.drain()
        (back,) = [row.step for _, row in seen.rows("resume")]
        assert seen.batches[back] == f"{work} low"


def test_a_resumed_coda_whose_turn_was_before_admission_runs_in_the_same_step():
    with observed(scheduler={**URGENT, "max_num_seqs": 2, "min_coda_batch_size": 2}) as seen:
        seen.add("better", 1, 2)
        seen.add("low", 1, 2, priority=1, max_loops=1)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        seen.step()
        seen.add("high", 1, 1)
        seen.until("low", "PARKED:DECODE_CODA")
        while "low" in seen.waiting:
            seen.step()
        assert seen.batches[-2:] == ["DECODE_CODA high better", "DECODE_CODA low"]
        assert seen.engine.last_schedule.batch.reason == "coda-resumed"


def test_a_resumed_prelude_whose_turn_was_before_admission_runs_in_the_same_step():
    pool = {"num_blocks": 6, "block_size": 1, "layout": "shared", "incremental_allocation": True}
    with observed(scheduler=URGENT, cache=pool, depths=1) as seen:
        seen.add("better", 1, 5)
        seen.add("low", 1, 4, priority=1)
        seen.until("low", "PARKED:DECODE_PRELUDE")
        while "low" in seen.waiting:
            seen.step()
        assert seen.batches[-2:] == ["DECODE_CODA better", "DECODE_PRELUDE low"]
        assert seen.engine.last_schedule.batch.reason == "prelude-resumed"


# ---- mixed ------------------------------------------------------------------------------------


def joining(mode):
    """`b` arrives while `a` is between two of its three loops."""
    scheduler = {"mode": mode, "max_num_batched_tokens": 4, "prefill_chunk_size": 2}
    with observed(scheduler=scheduler, execution=SPLIT) as seen:
        seen.add("a", 1, 5, max_loops=3)
        seen.until("a", "QUEUED:DECODE_RECURRENT")
        seen.add("b", 5, 3)
        seen.drain()
    return seen


def test_mixed_lets_prompt_rows_share_the_loops_and_the_preludes_of_decode_rows():
    batches = joining("mixed").batches
    at = batches.index("PROMPT_PRELUDE b[0:2)")
    assert batches[at : at + 14] == [
        "PROMPT_PRELUDE b[0:2)",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@1 b[0:2)@0",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@2 b[0:2)@1",
        "DECODE_CODA a",
        "DECODE_PRELUDE a",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@0 b[0:2)@2",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@1 b[0:2)@3",
        "PROMPT_PRELUDE b[2:4)",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@2 b[2:4)@0",
        "DECODE_CODA a",
        "DECODE_PRELUDE a",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@0 b[2:4)@1",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@1 b[2:4)@2",
        "DECODE_RECURRENT+PROMPT_RECURRENT a@2 b[2:4)@3",
    ]
    assert batches[at + 14 : at + 16] == ["DECODE_CODA a", "DECODE_PRELUDE+PROMPT_PRELUDE a b[4:5)"]


def test_mixed_gives_the_outputs_of_the_other_modes_in_fewer_steps():
    runs = {mode: joining(mode) for mode in MODES}
    assert runs["refill"].results == runs["no_refill"].results == runs["mixed"].results
    assert len(runs["mixed"].batches) < len(runs["refill"].batches)
    assert not any("+" in batch for batch in runs["refill"].batches + runs["no_refill"].batches)


def test_mixed_never_makes_a_ready_decode_loop_wait_for_two_prompt_batches():
    scheduler = {"mode": "mixed", "max_num_batched_tokens": 4, "prefill_chunk_size": 2}
    with observed(scheduler=scheduler, execution=SPLIT) as seen:
        seen.add("a", 1, 12)
        waited = most = 0
        for number in range(60):
            if number % 4 == 0:
                seen.add(f"b{number}", 3, 1)
            ready = "a" in seen.active and seen.request("a").work == "QUEUED:DECODE_RECURRENT"
            batch = seen.step()
            waited = waited + 1 if ready and "DECODE_RECURRENT" not in batch else 0
            most = max(most, waited)
        assert most == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "mode='mixed' needs split prefill"),
        (
            {
                "execution": ExecutionConfig(atomic_prefill=False),
                "speculative": SpeculativeConfig(num_speculative_tokens=2),
            },
            "mode='mixed' does not go with speculative",
        ),
    ],
)
def test_mixed_refuses_atomic_prefill_and_speculation(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        validate(EngineConfig(scheduler=SchedulerConfig(mode="mixed"), **changes))
