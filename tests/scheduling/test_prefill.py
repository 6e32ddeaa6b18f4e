"""How prompts are cut into chunks, and how split prompts go through the loops."""

import pytest
from observed import SPLIT, URGENT, observed


def test_a_chunk_is_bounded_by_its_size_and_by_what_is_left_of_the_batch():
    with observed(scheduler={"max_num_batched_tokens": 6, "prefill_chunk_size": 4}) as seen:
        seen.add("a", 10)
        assert seen.step() == "PROMPT_ATOMIC a[0:4)"
        seen.add("b", 3)
        seen.add("c", 2)
        assert seen.step() == "PROMPT_ATOMIC a[4:8) b[0:2)"
        assert seen.verdicts() == ["c: budget tokens=0 rows=2"]
        assert seen.step() == "PROMPT_ATOMIC c[0:2) a[8:10) b[2:3)"


@pytest.mark.parametrize("most", [1, 3])
def test_a_ready_loop_lets_so_many_prompt_batches_go_first_and_no_more(most):
    scheduler = {"max_prefill_batches_before_decode": most, "prefill_chunk_size": 1}
    with observed(scheduler=scheduler) as seen:
        seen.add("decoding", 1, 20)
        seen.until("decoding", "QUEUED:DECODE_RECURRENT")
        seen.step()
        seen.add("long", 15)
        kinds = [seen.step().partition(" ")[0] for _ in range(3 * (most + 1))]
        loops = [kind for kind in kinds if kind != "PROMPT_ATOMIC"]
        assert kinds[:most] == ["PROMPT_ATOMIC"] * most
        assert kinds[most] == "DECODE_RECURRENT"
        assert len(loops) >= 3


# ---- split ------------------------------------------------------------------------------------


def test_a_split_prompt_runs_every_loop_of_a_chunk_before_the_next_is_embedded():
    with observed(scheduler={"prefill_chunk_size": 2}, execution=SPLIT, depths=3) as seen:
        seen.add("a", 5)
        seen.drain()
        assert seen.batches == [
            "PROMPT_PRELUDE a[0:2)",
            "PROMPT_RECURRENT a[0:2)@0",
            "PROMPT_RECURRENT a[0:2)@1",
            "PROMPT_RECURRENT a[0:2)@2",
            "PROMPT_PRELUDE a[2:4)",
            "PROMPT_RECURRENT a[2:4)@0",
            "PROMPT_RECURRENT a[2:4)@1",
            "PROMPT_RECURRENT a[2:4)@2",
            "PROMPT_PRELUDE a[4:5)",
            "PROMPT_RECURRENT a[4:5)@0",
            "PROMPT_RECURRENT a[4:5)@1",
            "PROMPT_RECURRENT a[4:5)@2",
            "DECODE_CODA a",
        ]


def test_prompts_at_different_depths_share_a_batch():
    with observed(execution=SPLIT, depths=3) as seen:
        seen.add("a", 2)
        seen.step(2)
        seen.add("b", 3)
        assert [seen.step() for _ in range(5)] == [
            "PROMPT_PRELUDE b[0:3)",
            "PROMPT_RECURRENT a[0:2)@1 b[0:3)@0",
            "PROMPT_RECURRENT a[0:2)@2 b[0:3)@1",
            "DECODE_CODA a",
            "PROMPT_RECURRENT b[0:3)@2",
        ]


def test_an_interval_that_the_budget_cuts_goes_on_with_its_oldest_tokens():
    scheduler = {"max_num_batched_tokens": 3, "prefill_chunk_size": 3}
    with observed(scheduler=scheduler, execution=SPLIT, depths=2) as seen:
        seen.add("a", 2)
        seen.add("b", 3)
        rows = []
        while seen.engine.has_unfinished_requests():
            rows += [row for row in seen.step().split()[1:] if row.startswith("b[")]
        assert rows == ["b[0:1)", "b[0:1)@0", "b[0:1)@1", "b[1:3)", "b[1:3)@0", "b[1:3)@1"]


def test_a_shared_plane_takes_one_position_through_all_loops_before_the_next():
    cache = {"layout": "shared"}
    with observed(cache=cache, execution=SPLIT, depths=2) as seen:
        seen.add("a", 3)
        seen.drain()
        assert seen.batches == [
            "PROMPT_PRELUDE a[0:3)",
            *(f"PROMPT_RECURRENT a[{p}:{p + 1})@{depth}" for p in range(3) for depth in range(2)),
            "DECODE_CODA a",
        ]


def test_tokens_finish_in_order_and_never_before_they_are_embedded():
    scheduler = {**URGENT, "max_num_batched_tokens": 6, "prefill_chunk_size": 4}
    cache = {"num_blocks": 40, "incremental_allocation": True}
    with observed(scheduler=scheduler, cache=cache, execution=SPLIT) as seen:
        for number in range(6):
            seen.add(f"r{number}", 3 + 2 * number % 11, 3, priority=number % 3)
        best = {}
        while seen.engine.has_unfinished_requests():
            seen.step()
            for request in seen.engine.state.by_ref.values():
                done = request.frontiers
                assert done == sorted(done, reverse=True)
                assert done[0] <= request.prompt_len
                assert request.prefilled_tokens >= best.get(request.name, 0)
                best[request.name] = request.prefilled_tokens
        assert seen.events("offload")


@pytest.mark.parametrize("mode", ["refill", "no_refill", "mixed"])
def test_arrivals_are_not_embedded_twice_in_a_row_while_a_prompt_waits_for_its_loop(mode):
    scheduler = {"mode": mode, "max_num_batched_tokens": 4, "prefill_chunk_size": 2}
    with observed(scheduler=scheduler, execution=SPLIT) as seen:
        queue = seen.engine.state.queues["PROMPT_RECURRENT"]
        waited = 0
        for number in range(80):
            if number % 2 == 0:
                seen.add(f"r{number}", 3, 2)
            is_ready = bool(queue)
            works = seen.step().partition(" ")[0]
            waited = waited + 1 if is_ready and "PROMPT_PRELUDE" in works.split("+") else 0
            assert waited <= 1, seen.batches[-4:]


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_split_and_atomic_prompts_give_the_same_outputs(layout):
    results = []
    for execution in ({}, SPLIT):
        scheduler = {"max_num_batched_tokens": 6, "prefill_chunk_size": 4}
        with observed(scheduler=scheduler, cache={"layout": layout}, execution=execution) as seen:
            for name, prompt in (("a", 9), ("b", 3), ("c", 6)):
                seen.add(name, prompt, 5, exit_threshold=0.6)
            seen.drain()
            results.append(seen.results)
    assert results[0] == results[1]
