"""Who enters, in which order, who may pass whom, and what is said to those who wait."""

import pytest
from observed import URGENT, observed

ONE_PLANE = {"block_size": 1, "layout": "shared"}  # a block is a token


def test_a_request_waits_until_blocks_are_free_and_an_abort_lets_the_next_one_in():
    with observed(cache={"num_blocks": 8}) as seen:
        for name in "abc":  # 4 positions, 2 pages, 4 planes: the whole pool each
            seen.add(name, 2, 3)
        seen.step()
        assert (seen.active, seen.waiting, seen.free) == (["a"], ["b", "c"], 0)
        seen.engine.abort_request("a")
        seen.engine.abort_request("b")
        assert (seen.active, seen.waiting, seen.free) == ([], ["c"], 8)
        seen.drain()
        assert seen.finished == ["a", "b", "c"]
        assert len(seen.results["c"].token_ids) == 3
        assert seen.free == 8


def test_seats_bound_how_many_are_active_and_the_oldest_enter_first():
    with observed(scheduler={"max_num_seqs": 2}) as seen:
        for name in "abc":
            seen.add(name, 2, 1)
        assert seen.step() == "PROMPT_ATOMIC a[0:2) b[0:2)"
        seen.drain()
        assert seen.events("admit") == ["admit a", "admit b", "admit c"]


@pytest.mark.parametrize(
    ("policy", "order"), [("fcfs", "abcd"), ("priority", "dbca")], ids=["fcfs", "priority"]
)
def test_priority_orders_admission_under_its_policy_alone_and_ties_keep_the_order_of_arrival(
    policy, order
):
    with observed(scheduler={"policy": policy, "max_num_seqs": 1}) as seen:
        for name, priority in (("a", 2), ("b", 1), ("c", 1), ("d", -1)):
            seen.add(name, 1, 1, priority=priority)
        seen.drain()
        assert "".join(seen.finished) == order


# ---- passing ----------------------------------------------------------------------------------


def test_a_request_that_does_not_fit_is_passed_as_often_as_allowed_and_then_the_scan_stops():
    with observed(
        cache={"num_blocks": 20, **ONE_PLANE}, scheduler={"max_admission_bypasses": 1}
    ) as s:
        s.add("running", 4, 8)  # holds 11 of 20
        s.step()
        s.add("long", 8, 3)  # needs 10
        s.add("short", 2, 2)
        s.add("other", 2, 2)
        s.until("short", "ACTIVE")
        assert s.request("long").bypasses == 1
        s.until("long", "ACTIVE")
        assert s.events("admit")[:3] == ["admit running", "admit short", "admit long"]
        assert s.verdicts() == [
            "long: blocks need=10 free=9",
            "other: bypass-limit behind=long",
        ]


def test_a_request_that_comes_back_passes_nobody():
    scheduler = {**URGENT, "max_num_seqs": 2, "max_admission_bypasses": 1}
    with observed(cache={"num_blocks": 20, **ONE_PLANE}, scheduler=scheduler) as seen:
        seen.add("running", 4, 12)
        seen.step()
        seen.add("low", 2, 3, priority=2)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        seen.add("urgent", 1, 1, priority=-1)
        seen.until("low", "WAITING")  # it yields, and keeps its blocks
        seen.add("long", 8, 3, priority=1)
        seen.until("low", "ACTIVE")
        assert seen.request("long").bypasses == 0
        assert seen.waiting == ["long"]
        seen.drain()


def test_only_the_best_requests_within_the_scan_limit_are_looked_at():
    scheduler = {"admission_scan_limit": 2}
    with observed(cache={"num_blocks": 20, **ONE_PLANE}, scheduler=scheduler) as seen:
        seen.add("running", 4, 8)
        seen.step()
        for name in ("long", "longer"):
            seen.add(name, 8, 3)
        seen.add("short", 1, 1)  # would fit
        seen.until("running", "QUEUED:DECODE_CODA")
        seen.step(8)
        assert seen.waiting == ["long", "longer", "short"]
        assert [line.partition(":")[0] for line in seen.verdicts()] == ["long", "longer"]


# ---- verdicts ---------------------------------------------------------------------------------


def test_a_request_that_waits_gets_one_verdict_for_each_change_of_the_reason():
    scheduler = {"max_num_seqs": 2}
    with observed(cache={"num_blocks": 20, **ONE_PLANE}, scheduler=scheduler) as seen:
        seen.add("a", 4, 8)
        seen.add("b", 2, 2)
        seen.step()
        seen.add("c", 8, 3)
        seen.drain()
        assert seen.verdicts() == ["c: no-slot", "c: blocks need=10 free=9"]


def test_a_request_left_out_of_the_batch_of_its_key_is_told_once():
    with observed(scheduler={"max_num_batched_tokens": 2}) as seen:
        for name in "abc":
            seen.add(name, 1, 6)
        seen.drain()
        left_out = [line.partition(":")[0] for line in seen.verdicts()]
        assert len(left_out) == len(set(left_out))
        assert all("budget" in line for line in seen.verdicts())
        assert "c: budget tokens=0 rows=2" in seen.verdicts()
