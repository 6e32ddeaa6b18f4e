"""Who yields to whom, what is kept, and what comes back."""

import pytest
from observed import SPLIT, URGENT, observed, trigger

from rlt_fsm.moves import MOVES

ONE_PLANE = {"block_size": 1, "layout": "shared"}  # a block is a token
GROWING = {**ONE_PLANE, "incremental_allocation": True}
PREEMPTIONS = ("yield", "offload", "offload_resident", "rewind")


# ---- slots ------------------------------------------------------------------------------------


def test_an_urgent_arrival_takes_the_only_slot_and_finishes_first():
    with observed(scheduler={**URGENT, "max_num_seqs": 1}) as seen:
        seen.add("low", 2, 3, priority=1)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        seen.add("high", 2, 2)
        seen.drain()
        assert seen.finished == ["high", "low"]
        assert seen.events(*PREEMPTIONS) == ["yield low"]


@pytest.mark.parametrize("priority", [0, 1], ids=["equal", "less urgent"])
def test_a_slot_is_never_yielded_to_who_is_not_more_urgent(priority):
    with observed(scheduler={**URGENT, "max_num_seqs": 1}) as seen:
        seen.add("first", 2, 3)
        seen.until("first", "QUEUED:DECODE_RECURRENT")
        seen.add("second", 2, 2, priority=priority)
        seen.drain()
        assert seen.finished == ["first", "second"]
        assert seen.events(*PREEMPTIONS) == []


def test_the_least_urgent_and_youngest_request_yields():
    with observed(scheduler={**URGENT, "max_num_seqs": 3}) as seen:
        for name, priority in (("a", 1), ("b", 2), ("c", 2)):
            seen.add(name, 2, 4, priority=priority)
        seen.until("c", "QUEUED:DECODE_RECURRENT")
        seen.add("urgent", 2, 1)
        seen.until("urgent", "ACTIVE")
        assert seen.events("yield") == ["yield c"]
        assert seen.waiting == ["c"]


def test_under_fcfs_nobody_yields_a_slot():
    with observed(scheduler={"enable_preemption": True, "max_num_seqs": 1}) as seen:
        seen.add("low", 2, 3, priority=9)
        seen.step()
        seen.add("high", 2, 2)
        seen.drain()
        assert seen.finished == ["low", "high"]


def test_a_yielded_request_keeps_its_blocks_and_comes_back_without_taking_any():
    with observed(scheduler={**URGENT, "max_num_seqs": 1}) as seen:
        seen.add("low", 2, 3, priority=1)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        table = seen.request("low").block_table
        seen.add("high", 2, 2)
        seen.until("low", "WAITING")
        low = seen.request("low")
        assert (low.kv, low.block_table, low.host_blocks) == ("RESIDENT", table, 0)
        seen.until("low", "ACTIVE")
        assert low.block_table == table
        (back,) = [row for _, row in seen.rows("resume")]
        assert '"take":[]' in back.extra


def test_an_id_that_is_used_again_is_a_victim_like_any_other():
    with observed(scheduler={**URGENT, "max_num_seqs": 1}) as seen:
        seen.add("again", 2, 3, priority=1)
        seen.until("again", "QUEUED:DECODE_RECURRENT")
        seen.engine.abort_request("again")
        seen.add("again", 3, 3, priority=1)
        seen.until("again", "QUEUED:DECODE_RECURRENT")
        seen.add("high", 2, 1)
        seen.drain()
        assert seen.events("yield", "resume") == ["yield again", "resume again"]
        assert seen.finished == ["again", "high", "again"]


# ---- slots and blocks -------------------------------------------------------------------------


def test_who_yielded_gives_up_its_blocks_too_where_they_are_needed_and_keeps_its_place():
    with observed(
        scheduler={**URGENT, "max_num_seqs": 1}, cache={"num_blocks": 12, **ONE_PLANE}
    ) as s:
        s.add("low", 4, 3, priority=1)
        s.until("low", "QUEUED:DECODE_RECURRENT")
        s.add("lower", 1, 1, priority=2)
        s.add("high", 8, 2)  # needs 9 of the 6 that are free
        s.until("high", "ACTIVE")
        assert s.events(*PREEMPTIONS) == ["yield low", "offload_resident low"]
        assert s.waiting == ["low", "lower"]  # at its place, as if it had never run
        assert s.request("low").work == "PARKED:DECODE_RECURRENT"
        s.drain()
        assert s.finished == ["high", "low", "lower"]
        assert s.events("resume") == ["resume low"]


def test_one_victim_that_is_not_enough_is_followed_by_the_next_worst():
    with observed(scheduler=URGENT, cache={"num_blocks": 12, **ONE_PLANE}) as seen:
        for name, priority in (("a", 1), ("b", 3), ("c", 2)):
            seen.add(name, 2, 3, priority=priority)  # 4 blocks each
        seen.until("c", "QUEUED:DECODE_RECURRENT")
        seen.add("high", 6, 2)  # needs 7
        seen.until("high", "ACTIVE")
        assert seen.events(*PREEMPTIONS) == ["offload b", "offload c"]
        assert seen.active == ["a", "high"]


def test_nobody_yields_for_an_arrival_that_would_not_fit_even_so():
    scheduler = {**URGENT, "max_num_seqs": 2}
    with observed(scheduler=scheduler, cache={"num_blocks": 12, **ONE_PLANE}) as seen:
        seen.add("better", 4, 3)
        seen.add("low", 2, 3, priority=2)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        seen.add("large", 6, 3, priority=1)  # needs 8; 2 are free and low has 4
        before = seen.engine.state.seq
        seen.step(6)
        assert seen.active == ["better", "low"]
        assert seen.verdicts() == ["large: blocks need=8 free=2"]
        assert [row for _, row in seen.rows(*PREEMPTIONS) if row.seq > before] == []


def test_every_slot_may_yield_and_still_somebody_runs_in_every_step():
    scheduler = {**URGENT, "max_num_seqs": 2}
    with observed(scheduler=scheduler, cache={"num_blocks": 16, **GROWING}) as seen:
        seen.add("a", 4, 5, priority=2)
        seen.add("b", 4, 5, priority=2)
        seen.until("b", "QUEUED:DECODE_RECURRENT")
        for number in range(4):
            seen.add(f"urgent{number}", 6, 6)
        seen.drain()
        assert "nothing" not in seen.batches
        assert set(seen.events("yield")) == {"yield a", "yield b"}
        assert seen.finished[-2:] == ["a", "b"]


# ---- growing ----------------------------------------------------------------------------------


def test_a_row_of_the_batch_being_built_is_no_victim_and_is_one_again_for_the_next_batch():
    with observed(scheduler=URGENT, cache={"num_blocks": 6, **GROWING}, depths=2) as seen:
        seen.add("better", 1, 5, max_loops=1)
        seen.add("worse", 1, 3, priority=1)
        while seen.free:
            seen.step()
        # `worse` was first in its queue and took the last block; `better` found no victim.
        assert seen.batches[-2:] == ["DECODE_CODA worse better", "DECODE_PRELUDE worse"]
        assert seen.verdicts() == ["better: blocks need=1 free=0"]
        assert seen.events(*PREEMPTIONS) == []
        assert seen.step() == "DECODE_PRELUDE better"
        assert seen.events(*PREEMPTIONS) == ["offload worse"]


def test_who_is_evicted_for_a_row_before_its_own_is_left_out_of_the_batch():
    with observed(scheduler=URGENT, cache={"num_blocks": 4, **GROWING}, depths=1) as seen:
        seen.add("better", 1, 4)
        seen.add("worse", 1, 3, priority=1)
        seen.until("worse", "PARKED:DECODE_PRELUDE")
        assert seen.batches[-2:] == ["DECODE_CODA better worse", "DECODE_PRELUDE better"]


def test_nobody_is_evicted_for_the_growth_of_a_worse_request():
    with observed(scheduler=URGENT, cache={"num_blocks": 6, **GROWING}, depths=1) as seen:
        seen.add("better", 1, 5)
        seen.add("worse", 1, 5, priority=1)
        seen.drain()
        assert set(seen.events(*PREEMPTIONS)) == {"offload worse"}
        assert seen.finished == ["better", "worse"]


# ---- what is kept -----------------------------------------------------------------------------

# How `high` displaces `low`: by its slot, or by its blocks with and without room on the host.
WAYS = {
    "yield": ({"max_num_seqs": 1}, {}),
    "offload": ({"max_num_seqs": 2}, {"num_blocks": 10}),
    "rewind": ({"max_num_seqs": 2}, {"num_blocks": 10, "host_snapshot_blocks": 0}),
}


def displaced(way, mode, execution, at):
    """`low`'s rows and result, and what displaced it: `high` arrives before step `at`."""
    scheduler, cache = WAYS[way]
    with observed(
        scheduler={**URGENT, "mode": mode, "prefill_chunk_size": 2, **scheduler},
        cache={"block_size": 1, **cache},
        execution=execution,
        depths=2,
        is_audited=False,
    ) as seen:
        seen.add("low", 3, 3, priority=1)
        while seen.engine.has_unfinished_requests():
            if len(seen.batches) == at:
                seen.add("high", 2, 3)
            seen.step()
    rows = [batch for batch in seen.batches if "low" in batch]
    return rows, seen.results["low"], seen.rows(*PREEMPTIONS)


@pytest.mark.parametrize("execution", [{}, SPLIT], ids=["atomic", "split"])
@pytest.mark.parametrize("way", WAYS)
def test_a_request_displaced_at_any_point_of_its_life_ends_as_if_it_had_not_been(way, execution):
    works = set()
    for mode in ("refill", "no_refill"):
        rows_alone, result_alone, _ = displaced(way, mode, execution, at=None)
        for at in range(1, len(rows_alone)):
            rows, result, preemptions = displaced(way, mode, execution, at)
            assert result == result_alone
            assert {trigger(row) for _, row in preemptions} <= {way}
            works |= {MOVES[row.move].work[0].partition(":")[2] for _, row in preemptions}
            if way != "rewind":  # it goes on where it was: nothing is computed again
                assert rows == rows_alone
    prompt = {"PROMPT_PRELUDE", "PROMPT_RECURRENT"} if execution else {"PROMPT_ATOMIC"}
    assert works == prompt | {"DECODE_CODA", "DECODE_PRELUDE", "DECODE_RECURRENT"}


# ---- the host ---------------------------------------------------------------------------------


def test_copies_on_the_host_never_exceed_its_budget_and_what_does_not_fit_is_replayed():
    cache = {"num_blocks": 16, **GROWING, "host_snapshot_blocks": 5}
    with observed(scheduler=URGENT, cache=cache) as seen:
        for name, priority in (("a", 3), ("b", 2), ("c", 1), ("d", 0)):
            seen.add(name, 3, 8, priority=priority)
        most = 0
        while seen.engine.has_unfinished_requests():
            seen.step()
            most = max(most, seen.engine.state.host_blocks)
        assert 0 < most <= 5
        assert seen.events("offload")
        assert seen.events("rewind")
        assert {row.reason.partition(" ")[0] for _, row in seen.rows("rewind")} == {"host-full"}


@pytest.mark.parametrize("way", WAYS)
def test_aborting_a_displaced_request_frees_everything_at_once(way):
    scheduler, cache = WAYS[way]
    with observed(
        scheduler={**URGENT, **scheduler}, cache={"block_size": 1, **cache}, depths=2
    ) as seen:
        seen.add("low", 3, 3, priority=1)
        seen.until("low", "QUEUED:DECODE_RECURRENT")
        seen.add("high", 2, 3)
        seen.until("low", "WAITING")
        assert seen.events(*PREEMPTIONS) == [f"{way} low"]
        high = seen.request("high")
        seen.engine.abort_request("low")
        state = seen.engine.state
        assert (state.host_blocks, seen.waiting, list(state.by_id)) == (0, [], ["high"])
        assert seen.free == state.pool.num_blocks - high.blocks
        assert seen.engine._runner.requests_held == 1
        seen.drain()
        assert seen.results["low"].finish_reason == "abort"
