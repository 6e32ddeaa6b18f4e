"""S13: a log that is not whole. These corruptions are not sealed again, or not well."""

from __future__ import annotations

import json

import pytest
from checking import assert_first, first_finding
from reseal import Tampered

import audit


def test_s13_finds_a_row_that_was_edited_and_not_sealed(tampered: Tampered) -> None:
    batch = tampered.all("submit_batch")[4]
    batch.reason = "because"
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.step == batch.step
    assert finding.evidence["first_seq"] <= batch.seq <= finding.evidence["last_seq"]


def test_s13_finds_one_broken_link_not_all_that_follow(tampered: Tampered) -> None:
    tampered.all("submit_batch")[4].reason = "because"
    report = audit.verify(tampered.write())
    assert report.runs[0].counts == {"S13": 1}


def test_s13_finds_the_next_step_when_one_alone_was_sealed_again(tampered: Tampered) -> None:
    batch = tampered.all("submit_batch")[4]
    batch.reason = "because"
    digests = [step.digest for step in tampered.steps]
    tampered._chain()
    for step, digest in zip(
        tampered.steps[batch.step + 1 :], digests[batch.step + 1 :], strict=True
    ):
        step.digest = digest
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.step == batch.step + 1


def test_s13_finds_a_missing_row(tampered: Tampered) -> None:
    verdict = tampered.all("verdict")[0]
    tampered.drop(verdict)
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.seq == verdict.seq + 1
    assert f"eq {verdict.seq} is missing" in finding.message


def test_s13_finds_steps_that_fall(tampered: Tampered) -> None:
    abort = tampered.all("abort")[0]
    abort.step -= 2
    finding = assert_first(tampered, "S13", abort, sealed=False)
    assert finding.message == f"Step {abort.step} follows step {abort.step + 1}."


def test_s13_finds_a_cause_that_comes_later(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    output.cause = output.seq + 1
    assert_first(tampered, "S13", output)


def test_s13_finds_a_cause_that_led_to_something_else(tampered: Tampered) -> None:
    for event in (
        tampered.selects("DECODE_CODA")[0],
        tampered.enqueues("DECODE_PRELUDE")[0],
        tampered.all("output")[1],
        tampered.all("finish")[0],
        tampered.all("retire")[-1],
        tampered.all("complete_batch")[4],
        tampered.all("retire_batch")[4],
        tampered.all("admit")[1],
    ):
        right = event.cause
        event.cause = 1
        tampered.seal()
        finding = audit.verify(tampered.path).findings[0]
        assert (finding.invariant, finding.seq) == ("S13", event.seq)
        assert right in finding.evidence["due"]  # type: ignore[operator]
        event.cause = right


def test_s13_finds_events_of_a_step_out_of_their_order(tampered: Tampered) -> None:
    late, early = tampered.all("submit")[3], tampered.all("admit")[0]
    tampered.swap(late, early)
    finding = assert_first(tampered, "S13", late)
    assert finding.evidence["after_seq"] == early.seq


def test_s13_finds_a_transition_that_is_not_what_the_event_shows(tampered: Tampered) -> None:
    admit = tampered.all("admit")[0]
    tampered.edges = [
        (*edge[:4], "FINISHED") if edge[0] == admit.move and edge[2] == "status" else edge
        for edge in tampered.edges
    ]
    finding = assert_first(tampered, "S13", admit)
    assert "WAITING>FINISHED" in str(finding.evidence["transition"])


def test_s13_finds_a_transition_that_is_not_shown(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    select = tampered.selects("PROMPT_ATOMIC")[0]
    tampered.edges = [edge for edge in tampered.edges if edge[0] != select.move]
    assert_first(tampered, "S13", select)
    assert output.move not in {edge[0] for edge in tampered.edges}


def test_s13_finds_a_second_close(tampered: Tampered) -> None:
    assert_first(tampered, "S13", tampered.duplicate(tampered.all("close")[0]))


def test_s13_finds_a_step_without_its_row(tampered: Tampered) -> None:
    gone = tampered.steps.pop(7)
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.step == gone.step


@pytest.mark.parametrize("column", ["first_seq", "last_seq"])
def test_s13_finds_a_step_that_tells_other_seqs(tampered: Tampered, column: str) -> None:
    step = tampered.steps[7]
    setattr(step, column, getattr(step, column) + 1)
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.evidence["column"] == column


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [("config", ("scheduler", "policy"), "priority"), ("model", ("vocab_size",), 511)],
)
def test_s13_finds_a_header_that_differs_from_what_was_opened(
    tampered: Tampered, where: str, field: tuple[str, ...], value: object
) -> None:
    header = getattr(tampered, where)
    for name in field[:-1]:
        header = header[name]
    header[field[-1]] = value
    finding = assert_first(tampered, "S13", tampered.all("open")[0])
    assert finding.evidence["field"] == ".".join([where, *field])
    assert finding.evidence["header"] == value


def test_a_models_name_is_no_part_of_what_was_opened(tampered: Tampered) -> None:
    tampered.model["name"] = "elsewhere"
    assert audit.verify(tampered.seal()).ok


def test_s13_finds_another_outcome_than_the_one_told(tampered: Tampered) -> None:
    tampered.all("close")[0].tell(outcome="closed")
    assert_first(tampered, "S13", tampered.all("close")[0])


def test_s13_finds_events_after_the_end(tampered: Tampered) -> None:
    close = tampered.all("close")[0]
    again = tampered.duplicate(tampered.all("refuse")[0])
    tampered.drop(again)
    tampered.insert_after(close, again)
    again.step = close.step + 1
    assert_first(tampered, "S13", again)


def test_s13_finds_a_run_that_does_not_begin_with_open(tampered: Tampered) -> None:
    tampered.drop(tampered.all("open")[0])
    finding = first_finding(tampered)
    assert (finding.invariant, finding.seq) == ("S13", 1)


def test_s13_finds_an_event_of_a_request_that_the_log_does_not_name(tampered: Tampered) -> None:
    verdict = tampered.all("verdict")[0]
    verdict.ref = 77
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.seq == verdict.seq


def test_s13_finds_a_move_that_the_log_does_not_define(tampered: Tampered) -> None:
    verdict = tampered.all("verdict")[0]
    verdict.move = 9999
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.seq == verdict.seq


@pytest.mark.parametrize(
    ("trigger", "column", "value"),
    [
        ("select", "c", None),
        ("output", "a", None),
        ("submit", "extra", "{"),
        ("submit", "extra", None),
        ("admit", "extra", json.dumps({"take": "all"})),
        ("submit_batch", "extra", "[]"),
        ("finish", "extra", "{}"),
        ("admit", "ref", None),
    ],
)
def test_s13_finds_a_row_that_cannot_be_read(
    tampered: Tampered, trigger: str, column: str, value: object
) -> None:
    event = tampered.all(trigger)[0]
    setattr(event, column, value)
    tampered._chain()
    finding = assert_first(tampered, "S13", sealed=False)
    assert finding.seq == event.seq
    assert "cannot be read" in finding.message
