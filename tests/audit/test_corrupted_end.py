"""L1, D1 and D2: steps that did nothing, and runs that ended with something left."""

from __future__ import annotations

from dataclasses import replace

from checking import assert_first
from reseal import Tampered

import audit


def test_l1_finds_an_empty_step_with_work_ready(tampered: Tampered) -> None:
    """Ten steps later: a step in which nothing is chosen but a verdict is given."""
    verdict = tampered.all("verdict")[0]
    before = next(e for e in reversed(tampered.events) if e.step == 9)
    for event in tampered.events:
        event.step += event.step > 9
    for step in tampered.steps:
        step.step += step.step > 9
    empty = tampered.insert_after(before, replace(verdict, step=10, ref=0, blocks=16))
    finding = assert_first(tampered, "L1")
    assert finding.seq == empty.seq
    assert finding.evidence["ready"] == 3


def test_l1_finds_steps_that_were_skipped_with_work_ready(tampered: Tampered) -> None:
    for event in tampered.events:
        event.step += 2 * (event.step > 9)
    for step in tampered.steps:
        step.step += 2 * (step.step > 9)
    finding = assert_first(tampered, "L1")
    assert finding.step == 12
    assert finding.message.startswith("Steps 10 to 11 were empty")


def test_l1_finds_that_a_request_waits_although_it_would_fit(tampered: Tampered) -> None:
    """The last request arrives, a step passes, and only then it is admitted."""
    last = tampered.all("submit", lambda e: e.ref == 5)[0]
    second = tampered.all("submit", lambda e: e.ref == 6)[0]
    for event in tampered.events:
        event.step += event.seq > second.seq
    for step in tampered.steps:
        step.step += step.step > last.step
    tampered.steps.append(replace(tampered.steps[-1], step=last.step + 1))
    finding = assert_first(tampered, "L1")
    assert finding.step == last.step
    assert (finding.evidence["need"], finding.evidence["blocks_free"]) == (16, 60)


def test_l1_allows_numbers_to_be_skipped_while_nobody_is_there(tampered: Tampered) -> None:
    last = tampered.all("submit", lambda e: e.ref == 5)[0]
    for event in tampered.events:
        event.step += 7 * (event.seq >= last.seq)
    for step in tampered.steps:
        step.step += 7 * (step.step >= last.step - 7)
    assert audit.verify(tampered.seal()).ok


def test_d1_finds_what_a_request_holds_that_was_never_retired(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda e: e.ref == 6)[0]
    tampered.drop(retire)
    finding = assert_first(tampered, "D1", tampered.all("close")[0])
    assert finding.evidence["left"] == {
        "slots held": 1,
        "blocks referenced": 16,
        "state rows owned": 1,
    }
    assert finding.evidence["requests"] == ["d#2"]


def test_d1_finds_a_ticket_that_is_left_at_the_end(tampered: Tampered) -> None:
    last = tampered.all("retire_batch")[-1]
    retire = tampered.all("retire", lambda e: e.ref == 6)[0]
    tampered.drop(last, retire)
    finding = assert_first(tampered, "D1", tampered.all("close")[0])
    assert finding.evidence["tickets"] == [last.ticket]


def test_d2_finds_a_request_that_waits_for_ever(tampered: Tampered) -> None:
    """It holds nothing, so that nothing but its own end is missing."""
    abort = tampered.all("abort")[-1]
    tampered.drop(abort, tampered.later(abort, "retire"))
    finding = assert_first(tampered, "D2")
    assert finding.seq == tampered.all("close")[0].seq
    assert finding.request_id == "e"
    assert "no terminal event and no retire" in finding.message


def test_d2_finds_a_request_that_ended_and_was_never_retired(tampered: Tampered) -> None:
    tampered.drop(tampered.all("retire")[-1])
    finding = assert_first(tampered, "D2")
    assert finding.evidence["ended_seq"] == tampered.all("abort")[-1].seq


def test_d2_finds_a_second_end(tampered: Tampered) -> None:
    finish = tampered.all("finish")[0]
    finding = assert_first(tampered, "D2", tampered.duplicate(finish))
    assert finding.evidence["first_seq"] == finish.seq


def test_d2_finds_a_second_retire(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda e: e.ref == 0)[0]
    assert_first(tampered, "D2", tampered.duplicate(retire))
