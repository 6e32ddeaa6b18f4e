"""S10 and L3: a victim that may not be one, a resume of something else, and a turn for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from checking import assert_first
from reseal import Event, Tampered

import audit

Preempting = Callable[..., Tampered]


def _selected_before(log: Tampered, preemption: Event) -> None:
    """The victim's next loop becomes a row of the batch that is being built."""
    before = [e for e in log.all("select") if e.ref == preemption.ref and e.seq < preemption.seq]
    due = next(e for e in log.all("select") if e.seq > preemption.seq)
    row = replace(
        before[-1],
        seq=-1,
        step=due.step,
        ticket=due.ticket,
        move=log.move("select", work=("QUEUED:DECODE_RECURRENT", "TAKEN:DECODE_RECURRENT")),
        cause=None,
        a=0,
        d=0 if before[-1].d is None else before[-1].d + 1,
    )
    log.events.insert(log.events.index(preemption), row)


@pytest.mark.parametrize("name", ["urgent_run", "growing_run", "returning_run"])
def test_runs_with_preemptions_are_clean(preempting: Preempting, name: str) -> None:
    assert audit.verify(preempting(name).seal()).ok


# ---- the victim ----------------------------------------------------------------------------------


def test_s10_finds_a_victim_in_the_batch_being_built(preempting: Preempting) -> None:
    log = preempting("returning_run")
    offload = log.all("offload")[0]
    _selected_before(log, offload)
    finding = assert_first(log, "S10", offload)
    assert "row 0 of the batch being built is its own" in finding.message


def test_s10_finds_a_rewound_row_which_no_machine_forbids(preempting: Preempting) -> None:
    log = preempting("returning_run", host_snapshot_blocks=0)
    rewind = log.all("rewind")[0]
    _selected_before(log, rewind)
    rewind.move = log.move(
        "rewind",
        status=("ACTIVE", "WAITING"),
        work=("TAKEN:DECODE_RECURRENT", "IDLE"),
        slot=("HELD", "FREE"),
        kv=("RESIDENT", "NONE"),
    )
    assert_first(log, "S10", rewind)


def test_s10_finds_a_victim_whose_ticket_is_not_retired(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    preemption = log.all("yield")[0]
    last = [e for e in log.all("retire_batch") if e.seq < preemption.seq][-1]
    log.drop(last)
    finding = assert_first(log, "S10", preemption)
    assert f"ticket {last.ticket} has a row of it and is not retired" in finding.message


def test_s10_finds_a_victim_with_a_lease(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    preemption = log.all("yield")[0]
    pin = replace(preemption, seq=-1, move=log.move("pin"), extra='{"pin": [16, 17]}')
    log.events.insert(log.events.index(preemption), pin)
    finding = assert_first(log, "S10", preemption)
    assert "2 of its blocks are leased" in finding.message


def test_s10_lets_a_victim_go_whose_lease_is_over(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    preemption = log.all("yield")[0]
    pin = replace(preemption, seq=-1, move=log.move("pin"), extra='{"pin": [16, 17]}')
    unpin = replace(preemption, seq=-1, move=log.move("unpin"), extra='{"unpin": [16, 17]}')
    place = log.events.index(preemption)
    log.events[place:place] = [pin, unpin]
    assert audit.verify(log.seal()).ok


# ---- the requester -------------------------------------------------------------------------------


def test_s10_finds_a_victim_that_is_better_than_its_requester(preempting: Preempting) -> None:
    log = preempting("growing_run")
    submit = log.all("submit")[0]
    submit.tell(params={**submit.data["params"], "priority": 5})
    log.configure("scheduler", policy="priority")
    admits = log.all("admit")
    log.swap(*admits)  # so that only the preemption is out of order
    offload = log.all("offload")[0]
    finding = assert_first(log, "S10", offload)
    assert "a, for whom it is, is worse: order key (5, 2) after (0, 3)" in finding.message


def test_s10_finds_a_yield_to_one_that_is_not_more_urgent(preempting: Preempting) -> None:
    """`big` was there before `c`, but is no more urgent."""
    log = preempting("returning_run")
    for submit in log.all("submit")[:3]:
        submit.tell(params={**submit.data["params"], "priority": 1})
    offload = log.all("offload")[0]
    offload.move = log.move(
        "yield",
        status=("ACTIVE", "WAITING"),
        work=log.work(offload),
        slot=("HELD", "FREE"),
    )
    offload.blocks = len(offload.data["drop"])
    offload.extra = '{"for": "big#1"}'
    finding = assert_first(log, "S10", offload)
    assert "big, for whom it is, is not more urgent: priority 1 and 1" in finding.message


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "it is told to be for nobody"),
        ("x#1", "it is told to be for x#1"),
        ("b#1", "it is told to be for itself"),
        ("d#1", "d, for whom it is, is not there"),
        ("a#1", "a, for whom it is, is ACTIVE"),
    ],
)
def test_s10_finds_a_yield_for_nobody_who_could_want_it(
    preempting: Preempting, told: str | None, why: str
) -> None:
    log = preempting("urgent_run")
    preemption = log.all("yield")[0]
    preemption.tell(**{"for": told})
    assert why in assert_first(log, "S10", preemption).message


def test_s10_finds_a_rewind_for_nobody_that_only_says_it_was_recovered(
    preempting: Preempting,
) -> None:
    log = preempting("growing_run", host_snapshot_blocks=0)
    rewind = log.all("rewind")[0]
    rewind.tell(**{"for": None})
    rewind.reason = "recovered"
    assert "it is told to be for nobody" in assert_first(log, "S10", rewind).message


def test_s10_finds_a_preemption_where_there_are_none(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    log.configure("scheduler", enable_preemption=False)
    finding = assert_first(log, "S10", log.all("yield")[0])
    assert "enable_preemption is off" in finding.message


# ---- park and resume -----------------------------------------------------------------------------


def test_s10_finds_another_key_resumed_than_was_parked(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    resume = log.all("resume")[0]
    resume.move = log.move(
        "resume",
        status=("WAITING", "ACTIVE"),
        work=("PARKED:DECODE_CODA", "QUEUED:DECODE_CODA"),
        slot=("FREE", "HELD"),
        kv=("OFFLOADED", "RESIDENT"),
    )
    finding = assert_first(log, "S10", resume)
    assert finding.evidence["parked"] == "DECODE_RECURRENT"
    assert finding.evidence["resumed"] == "DECODE_CODA"


def test_s10_finds_a_request_that_is_parked_twice(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    again = log.duplicate(log.all("yield")[0])
    finding = assert_first(log, "S10", again)
    assert "is parked with DECODE_RECURRENT already" in finding.message


def test_s10_finds_a_request_that_resumes_twice(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    again = log.duplicate(log.all("resume")[0])
    again.tell(take=[])
    finding = assert_first(log, "S10", again)
    assert "is not parked" in finding.message


# ---- L3 ------------------------------------------------------------------------------------------


def test_l3_finds_a_request_that_is_preempted_twice_for_the_same_and_neither_ran(
    preempting: Preempting,
) -> None:
    """`b` takes its slot back before `c`, which lacks blocks, and gives it up once more."""
    log = preempting("urgent_run")
    first = log.all("yield")[0]
    resume = replace(
        first,
        seq=-1,
        move=log.move(
            "resume",
            status=("WAITING", "ACTIVE"),
            work=("PARKED:DECODE_RECURRENT", "QUEUED:DECODE_RECURRENT"),
            slot=("FREE", "HELD"),
        ),
        cause=None,
        extra='{"state_row": 1, "take": []}',
    )
    again = log.insert_after(log.insert_after(first, resume), replace(first, seq=-1))
    finding = assert_first(log, "L3", again)
    assert finding.request_id == "b"
    assert finding.evidence["requester"] == "c#1"
    assert finding.evidence["before_seq"] == first.seq
