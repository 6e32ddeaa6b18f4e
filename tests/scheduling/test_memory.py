"""How many blocks requests take, when, and what is left free."""

import pytest
from observed import observed

from rlt_fsm import RequestRefused

GROWING = {"incremental_allocation": True}


@pytest.mark.parametrize(("cache", "first"), [({}, 28), (GROWING, 4)], ids=["at once", "as needed"])
def test_blocks_are_taken_at_once_or_as_positions_need_them(cache, first):
    with observed(cache=cache, scheduler={"prefill_chunk_size": 2}) as seen:
        seen.add("a", 5, 9)  # 13 positions, 7 pages, 4 planes
        seen.step()
        assert seen.request("a").blocks == first
        held = [first]
        while len(seen.results) == 0 or not seen.results["a"].finished:
            held.append(seen.request("a").blocks)
            seen.step()
        assert held == sorted(held)
        assert held[-1] == 28


def test_taking_blocks_as_they_are_needed_changes_no_output():
    results = []
    for cache in ({}, GROWING):
        with observed(cache=cache, scheduler={"prefill_chunk_size": 2}) as seen:
            for name, prompt in (("a", 5), ("b", 3)):
                seen.add(name, prompt, 9, exit_threshold=0.6)
            seen.drain()
            results.append(seen.results)
    assert results[0] == results[1]


def test_the_last_token_is_never_fed_back_and_needs_no_position():
    with observed(cache={"num_blocks": 16}) as seen:
        seen.add("fits", 3, 6)  # 8 positions
        with pytest.raises(RequestRefused, match="need 20 KV blocks and the pool has 16"):
            seen.add("does not", 4, 6)
        assert seen.step() == "PROMPT_ATOMIC fits[0:3)"
        assert seen.free == 0


def test_without_preemption_nobody_enters_into_what_running_requests_may_still_need():
    cache = {"num_blocks": 16, "block_size": 4, **GROWING}
    with observed(cache=cache, scheduler={"prefill_chunk_size": 4}) as seen:
        seen.add("a", 8, 5)  # takes 4 blocks and may need 12
        seen.add("b", 5, 4)  # needs 8: 8 + 8 > 12
        seen.step()
        assert (seen.active, seen.free) == (["a"], 12)
        assert seen.verdicts() == ["b: blocks need=8 free=12"]
        seen.drain()
        assert seen.events("admit", "finish")[1:3] == ["finish a", "admit b"]


def test_the_watermark_stays_free_while_anything_is_active_and_does_not_bind_an_idle_engine():
    cache = {"num_blocks": 100, "block_size": 1, "layout": "shared", "watermark_ratio": 0.1}
    with observed(cache=cache) as seen:
        seen.add("big", 91, 1)
        seen.step()
        assert (seen.active, seen.free) == (["big"], 9)
        seen.drain()
        seen.add("a", 50, 1)
        seen.add("too much", 41, 1)
        seen.add("just right", 40, 1)
        seen.step()
        assert (seen.active, seen.free) == (["a", "just right"], 10)


@pytest.mark.parametrize("is_on", [False, True], ids=["no preemption", "preemption"])
def test_a_tight_pool_gives_what_a_roomy_one_gives_and_is_free_at_the_end(is_on):
    results = []
    for num_blocks in (400, 24):
        cache, scheduler = {"num_blocks": num_blocks, **GROWING}, {"enable_preemption": is_on}
        with observed(cache=cache, scheduler=scheduler) as seen:
            for name in "abc":
                seen.add(name, 2, 8, exit_threshold=0.6)
            seen.drain()
            results.append(seen.results)
            assert bool(seen.events("offload")) == (is_on and num_blocks == 24)
            assert seen.free == num_blocks
    assert results[0] == results[1]


def test_blocks_given_back_last_are_taken_first_and_ids_ascend_at_the_start():
    with observed(cache={"num_blocks": 16, "layout": "shared"}) as seen:
        seen.add("a", 4, 1)
        seen.add("b", 4, 2)
        seen.step()
        assert seen.request("a").block_table == ((0, 1),)
        assert seen.request("b").block_table == ((2, 3, 4),)
        seen.step()
        assert seen.finished == ["a"]
        seen.add("c", 6, 1)
        seen.until("c", "ACTIVE")
        assert seen.request("c").block_table == ((0, 1, 5),)
