"""F1 to F4: somebody goes before another whose turn it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from checking import assert_first
from reseal import Tampered

import audit

Preempting = Callable[..., Tampered]


def _set_priority(log: Tampered, ref: int, priority: int) -> None:
    submit = log.all("submit", lambda event: event.ref == ref)[0]
    submit.tell(params={**submit.data["params"], "priority": priority})


@pytest.mark.parametrize("name", ["passing_run", "returning_run", "prompt_first_run", "mixed_run"])
def test_runs_in_which_some_pass_others_are_clean(preempting: Preempting, name: str) -> None:
    assert audit.verify(preempting(name).seal()).ok


# ---- F1 ------------------------------------------------------------------------------------------


def test_f1_finds_an_admission_before_a_better_request_that_fits(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    _set_priority(log, 1, 0)
    finding = assert_first(log, "F1", log.all("admit")[0])
    assert finding.request_id == "a"
    assert (finding.evidence["passed"], finding.evidence["need"]) == ("b", 16)


def test_f1_finds_an_admission_before_one_that_needs_no_more_where_nothing_is_free(
    preempting: Preempting,
) -> None:
    """`d` (8 blocks) becomes better than `c`, which takes 24 that others gave up for it."""
    log = preempting("urgent_run")
    arrival = log.all("submit", lambda event: event.ref == 3)[0]
    log.events.remove(arrival)
    late = log.all("submit", lambda event: event.ref == 2)[0]
    log.insert_after(late, arrival)
    arrival.step = late.step
    _set_priority(log, 3, -1)
    finding = assert_first(log, "F1", log.all("admit", lambda event: event.ref == 2)[0])
    assert finding.evidence["passed"] == "d"


def test_f1_lets_a_request_that_does_not_fit_be_passed_as_often_as_the_config_says(
    preempting: Preempting,
) -> None:
    log = preempting("passing_run")
    log.configure("scheduler", max_admission_bypasses=3)
    assert audit.verify(log.seal()).ok


def test_f1_finds_a_request_that_is_passed_too_often(preempting: Preempting) -> None:
    log = preempting("passing_run")
    log.configure("scheduler", max_admission_bypasses=2)
    finding = assert_first(log, "F1", log.all("admit", lambda event: event.ref == 4)[0])
    assert finding.request_id == "d"
    assert (finding.evidence["passed"], finding.evidence["passes"]) == ("big", 3)


# ---- F2 ------------------------------------------------------------------------------------------


def test_f2_finds_one_prompt_batch_too_many_while_a_loop_is_ready(preempting: Preempting) -> None:
    log = preempting("prompt_first_run")
    log.configure("scheduler", max_prefill_batches_before_decode=2)
    chunks = [e for e in log.selects("PROMPT_ATOMIC") if e.ref == 1]
    batch = next(e for e in log.all("submit_batch") if e.ticket == chunks[-1].ticket)
    finding = assert_first(log, "F2", batch)
    assert (finding.evidence["prompt_batches"], finding.evidence["ready"]) == (3, ["a"])


def test_f2_lets_one_mixed_prelude_batch_more_pass_in_mixed_mode_only(
    preempting: Preempting,
) -> None:
    log = preempting("mixed_run")
    log.configure("scheduler", mode="refill")
    finding = assert_first(log, "F2")
    (batch,) = (e for e in log.all("submit_batch") if e.seq == finding.seq)
    assert batch.data["works"] == ["DECODE_PRELUDE", "PROMPT_PRELUDE"]


# ---- F3 ------------------------------------------------------------------------------------------


def test_f3_finds_a_resume_before_a_better_request_that_fits(preempting: Preempting) -> None:
    log = preempting("urgent_run")
    _set_priority(log, 3, 1)
    finding = assert_first(log, "F3", log.all("resume")[0])
    assert finding.request_id == "b"
    assert (finding.evidence["passed"], finding.evidence["need"]) == ("d", 8)


def test_f3_lets_a_resume_pass_one_that_does_not_fit(preempting: Preempting) -> None:
    log = preempting("returning_run")
    resume = log.all("resume")[0]
    big = log.all("admit", lambda event: event.ref == 1)[0]
    assert resume.seq < big.seq
    log.configure("scheduler", max_admission_bypasses=2)
    assert audit.verify(log.seal()).ok


def test_f3_finds_blocks_for_a_resume_when_the_bypasses_are_used_up(preempting: Preempting) -> None:
    log = preempting("returning_run")
    log.configure("scheduler", max_admission_bypasses=1)
    finding = assert_first(log, "F3", log.all("resume")[0])
    assert finding.request_id == "c"
    assert (finding.evidence["passed"], finding.evidence["passes"]) == ("big", 1)


# ---- F4 ------------------------------------------------------------------------------------------


def _leave_out(log: Tampered, tickets: list[int]) -> None:
    """The last row of some batches, and what came of it, never were."""
    for ticket in tickets:
        row = next(e for e in log.all("select") if (e.ticket, e.a) == (ticket, 1))
        batch = next(e for e in log.all("submit_batch") if e.ticket == ticket)
        batch.tell(rows=1, tokens=1)
        log.drop(row, log.later(row, "enqueue"))


def test_f4_finds_ready_work_that_is_left_out_for_too_long(preempting: Preempting) -> None:
    """`a` and `c` are ready for their loops; three batches of one row take `c` alone."""
    log = preempting("urgent_run")
    _leave_out(log, [12, 13, 14])
    batch = next(e for e in log.all("submit_batch") if e.ticket == 14)
    finding = assert_first(log, "F4", None)
    assert (finding.seq, finding.request_id) == (batch.seq, "a")
    assert (finding.evidence["work"], finding.evidence["batches"]) == ("DECODE_RECURRENT", 3)
    assert (finding.evidence["requests"], finding.evidence["allowed"]) == (2, 3)


def test_f4_is_patient_for_as_long_as_the_others_take(preempting: Preempting) -> None:
    """After two it is not too late; what is wrong then is the order of depths."""
    log = preempting("urgent_run")
    _leave_out(log, [12, 13])
    assert_first(log, "S7")
