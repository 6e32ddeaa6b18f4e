"""S11 and S12: tickets that do not run their course, results that belong to nobody."""

from __future__ import annotations

from checking import assert_first
from reseal import Tampered


def test_s11_finds_a_ticket_that_is_completed_twice(tampered: Tampered) -> None:
    done = tampered.all("complete_batch")[3]
    finding = assert_first(tampered, "S11", tampered.duplicate(done))
    assert finding.evidence["state"] == "COMPLETED"


def test_s11_finds_a_ticket_that_is_retired_twice(tampered: Tampered) -> None:
    retired = tampered.all("retire_batch")[3]
    assert_first(tampered, "S11", tampered.duplicate(retired))


def test_s11_finds_a_ticket_that_is_completed_before_it_is_submitted(tampered: Tampered) -> None:
    submitted = tampered.all("submit_batch")[3]
    done = tampered.all("complete_batch")[3]
    tampered.swap(submitted, done)
    assert_first(tampered, "S11", done)


def test_s11_finds_a_ticket_that_is_retired_before_it_is_completed(tampered: Tampered) -> None:
    done = tampered.all("complete_batch")[3]
    retired = tampered.all("retire_batch")[3]
    tampered.drop(retired)
    tampered.insert_after(tampered.all("submit_batch")[3], retired)
    assert done.ticket == retired.ticket
    assert_first(tampered, "S11", retired)


def test_s11_finds_a_ticket_that_was_never_retired_when_the_next_is_submitted(
    tampered: Tampered,
) -> None:
    retired = tampered.all("retire_batch")[3]
    following = tampered.all("submit_batch")[4]
    tampered.drop(retired)
    finding = assert_first(tampered, "S11", following)
    assert finding.evidence["in_flight"] == [retired.ticket]


def test_s11_finds_a_row_that_nothing_came_of(tampered: Tampered) -> None:
    enqueue = tampered.enqueues("DECODE_RECURRENT")[0]
    retired = next(e for e in tampered.all("retire_batch") if e.ticket == enqueue.ticket)
    tampered.drop(enqueue)
    finding = assert_first(tampered, "S11")
    assert finding.seq == retired.seq
    assert finding.request_id == "a"
    assert finding.evidence["work"] == "TAKEN:DECODE_PRELUDE"


def test_s11_finds_a_step_that_tells_another_ticket(tampered: Tampered) -> None:
    tampered.steps[2].ticket += 1
    assert_first(tampered, "S11", sealed=False)


def test_s12_finds_a_result_before_its_ticket_is_complete(tampered: Tampered) -> None:
    done = tampered.all("complete_batch")[0]
    result = next(e for e in tampered.events if e.seq > done.seq and e.ref is not None)
    tampered.drop(done)
    finding = assert_first(tampered, "S12", result)
    assert finding.evidence["state"] == "SUBMITTED"


def test_s12_finds_a_result_of_another_request(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    output.ref = 2  # it still waits for its prompt
    finding = assert_first(tampered, "S12", output)
    assert "has no row of it" in finding.message


def test_s12_finds_a_result_of_another_ticket(tampered: Tampered) -> None:
    output = tampered.all("output")[1]
    output.ticket -= 1
    finding = assert_first(tampered, "S12", output)
    assert finding.evidence["state"] == "RETIRED"


def test_s12_finds_a_result_without_a_ticket(tampered: Tampered) -> None:
    enqueue = tampered.enqueues("DECODE_PRELUDE")[0]
    enqueue.ticket = None
    assert_first(tampered, "S12", enqueue)


def test_s12_finds_a_result_for_an_earlier_generation(tampered: Tampered) -> None:
    """The first `a` is gone when the third gets its output."""
    output = tampered.all("output", lambda e: e.ref == 5)[0]
    output.ref = 0
    finding = assert_first(tampered, "S12", output)
    assert finding.evidence["generation"] == 1


def test_s12_finds_a_result_for_a_request_that_has_finished(tampered: Tampered) -> None:
    finish = tampered.all("finish", lambda e: e.ref == 6)[0]
    output = tampered.all("output", lambda e: e.ref == 6)[0]
    finish.tell(finish_reason="error")  # which may come without an output
    finish.cause = output.cause
    tampered.drop(output)
    tampered.insert_after(finish, output)
    finding = assert_first(tampered, "S12", output)
    assert finding.evidence["status"] == "FINISHED"


def test_s12_finds_an_id_that_is_used_again_too_early(tampered: Tampered) -> None:
    tampered.requests[2][1:] = ["b", 2]
    finding = assert_first(tampered, "S12", tampered.all("submit")[2])
    assert finding.evidence["earlier"] == "b"


def test_s12_finds_a_generation_that_is_left_out(tampered: Tampered) -> None:
    tampered.requests[5][2] = 4
    finding = assert_first(tampered, "S12", tampered.all("submit", lambda e: e.ref == 5)[0])
    assert finding.evidence["due"] == 3


def test_s12_counts_refused_uses_of_an_id_as_generations(tampered: Tampered) -> None:
    tampered.requests[3][2] = 1
    assert_first(tampered, "S12", tampered.all("refuse")[0])
