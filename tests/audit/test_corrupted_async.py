"""Asynchronous logs: the rules that know several tickets in flight find what breaks them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from async_runs import run_to_file
from checking import assert_first, first_finding
from reseal import Tampered

import audit


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("async") / "run.db"
    run_to_file(path)
    return path


@pytest.fixture
def late(clean: Path, tmp_path: Path) -> Tampered:
    """A copy of the clean asynchronous log, open to be corrupted."""
    return Tampered(Path(shutil.copy(clean, tmp_path / "late.db")))


def overtaking(log: Tampered) -> tuple[int, int]:
    """(ticket, an earlier one that is completed after it and has a row of the same request)."""
    done = [event.ticket for event in log.all("complete_batch")]
    refs: dict[int, set[int]] = {}
    for event in log.all("select"):
        refs.setdefault(event.ticket, set()).add(event.ref)
    for place, ticket in enumerate(done):
        for earlier in done[place:]:
            if earlier < ticket and refs[earlier] & refs[ticket]:
                return ticket, earlier
    raise AssertionError("nothing overtakes")


def test_the_run_is_clean_and_has_what_the_tests_need(late: Tampered) -> None:
    report = audit.verify(late.path)
    assert report.ok
    assert late.all("drop")
    assert overtaking(late)


def test_s11_finds_more_tickets_in_flight_than_may_be(late: Tampered) -> None:
    late.configure("execution", max_in_flight=1)
    finding = assert_first(late, "S11")
    assert finding.evidence["max_in_flight"] == 1


def test_s11_finds_a_ticket_that_is_retired_before_its_result_is_in(late: Tampered) -> None:
    retired = late.all("retire_batch")[2]
    late.drop(retired)
    submitted = next(e for e in late.all("submit_batch") if e.ticket == retired.ticket)
    late.insert_after(submitted, retired)
    retired.step = submitted.step
    assert_first(late, "S11", retired)


def test_s12_finds_an_output_that_comes_before_its_ticket_is_complete(late: Tampered) -> None:
    output = late.all("output")[0]
    done = next(e for e in late.all("complete_batch") if e.ticket == output.ticket)
    late.drop(output)
    late.events.insert(late.events.index(done), output)
    output.step, output.cause = done.step, None
    finding = assert_first(late, "S12", output)
    assert finding.evidence["state"] == "SUBMITTED"


def test_s12_finds_a_result_that_is_applied_out_of_turn(late: Tampered) -> None:
    """An output is moved up to where its ticket is complete and an earlier one is not retired."""
    ticket, earlier = overtaken_coda(late)
    done = next(e for e in late.all("complete_batch") if e.ticket == ticket)
    output = next(e for e in late.all("output") if e.ticket == ticket)
    late.drop(output)
    late.insert_after(done, output)
    output.step = done.step
    finding = assert_first(late, "S12", output)
    assert finding.evidence["earlier"] <= earlier


def overtaken_coda(log: Tampered) -> tuple[int, int]:
    """A ticket with an output that is complete before an earlier ticket of its request."""
    done = {event.ticket: event.seq for event in log.all("complete_batch")}
    for output in log.all("output"):
        for select in log.all("select", lambda e: e.ref == output.ref):  # noqa: B023  # used at once
            if select.ticket < output.ticket and done[select.ticket] > done[output.ticket]:
                return output.ticket, select.ticket
    raise AssertionError("no coda overtakes")


def test_s12_finds_a_late_result_that_is_not_dropped(late: Tampered) -> None:
    dropped = late.all("drop", lambda e: e.ref == 0)[0]
    output = late.all("output", lambda e: e.ref == 0)[-1]
    dropped.move, dropped.reason = output.move, None
    dropped.a, dropped.b, dropped.c = output.a + 1, 5, 4
    finding = assert_first(late, "S12", dropped)
    assert finding.evidence["status"] == "FINISHED"


def test_s8_finds_a_second_coda_before_the_output_of_the_first(late: Tampered) -> None:
    second = late.selects("DECODE_CODA")
    coda = next(e for e in second if e.ref == second[0].ref and e is not second[0])
    output = late.all("output", lambda e: e.ref == coda.ref)[0]
    late.drop(output)
    finding = first_finding(late)
    assert finding.invariant == "S8"
    assert finding.request_id == late.requests[coda.ref][1]


def test_s9_finds_blocks_that_are_given_back_while_a_ticket_may_still_write_them(
    late: Tampered,
) -> None:
    """The request that stopped late is retired with its finish; its surplus is still in flight."""
    finish = late.all("finish", lambda e: e.ref == 0)[0]
    retired = late.later(finish, "retire")
    late.drop(retired)
    late.insert_after(finish, retired)
    retired.step = finish.step
    assert_first(late, "S9", retired)


def test_s13_finds_an_arrival_that_comes_after_results(late: Tampered) -> None:
    arrival, done = late.all("submit", lambda e: e.ref == 2)[0], late.all("complete_batch")[0]
    verdicts = [e for e in late.events if e.ref == 2 and late.trigger(e) == "verdict"]
    late.drop(arrival, *verdicts)
    late.insert_after(done, arrival)
    arrival.step = done.step
    assert_first(late, "S13", arrival)


def test_s13_finds_work_that_goes_on_for_no_reason(late: Tampered) -> None:
    enqueue = late.enqueues("DECODE_RECURRENT")[2]
    enqueue.cause = late.all("submit")[0].seq
    assert_first(late, "S13", enqueue)


def test_s10_finds_a_victim_that_has_a_ticket_in_flight(late: Tampered) -> None:
    late.configure("scheduler", enable_preemption=True)
    enqueue = late.enqueues("DECODE_RECURRENT")[0]
    yielded = late.duplicate(enqueue)
    key = "DECODE_RECURRENT"
    yielded.move = late.move(
        "offload",
        status=("ACTIVE", "WAITING"),
        work=(f"QUEUED:{key}", f"PARKED:{key}"),
        slot=("HELD", "FREE"),
        kv=("RESIDENT", "OFFLOADED"),
    )
    yielded.ticket = None
    yielded.tell(**{"for": "a#1", "drop": [], "host_blocks": 0})
    findings = audit.verify(late.seal()).findings
    assert any(
        f.invariant == "S10" and f.seq == yielded.seq and "not retired" in f.message
        for f in findings
    )


def test_a_submission_that_names_no_ticket_is_found_among_several_in_flight(late: Tampered) -> None:
    late.configure("execution", max_in_flight=1)
    submitted = late.all("submit_batch")[4]
    submitted.ticket = None
    assert_first(late, "S11")
    found = audit.verify(late.path).findings
    assert any(f.invariant == "S6" and f.seq == submitted.seq for f in found)
