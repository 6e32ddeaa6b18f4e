"""S8: outputs that should not be, or should be others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checking import assert_first
from reseal import Tampered


def test_s8_finds_a_gap_in_the_outputs(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[2]
    output.a += 1
    finding = assert_first(tampered, "S8", output)
    assert finding.evidence["due"] == 2


def test_s8_finds_an_output_twice(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    assert_first(tampered, "S8", tampered.duplicate(output))


def test_s8_finds_a_missing_output_when_the_request_goes_on(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[1]
    goes_on = tampered.later(output, "enqueue")
    tampered.drop(output)
    assert_first(tampered, "S8", goes_on)


def test_s8_finds_a_missing_last_output_when_the_request_ends(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[3]
    finish = tampered.later(output, "finish")
    tampered.drop(output)
    finding = assert_first(tampered, "S8", finish)
    assert (finding.evidence["outputs"], finding.evidence["limit"]) == (3, 4)


def test_s8_finds_one_output_too_many(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[3]
    more = tampered.insert_after(output, replace(output, a=4))
    finding = assert_first(tampered, "S8", more)
    assert finding.evidence["limit"] == 4


def test_s8_finds_that_a_request_goes_on_after_its_eos(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[1]
    output.b = 0
    assert_first(tampered, "S8", tampered.later(output, "enqueue"))


def test_s8_finds_an_output_after_a_stop(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 5)[0]
    more = tampered.insert_after(output, replace(output, a=1))
    finding = assert_first(tampered, "S8", more)
    assert finding.evidence["stop"] == output.seq


@pytest.mark.parametrize("depth", [1, 5])
def test_s8_finds_a_depth_outside_what_the_request_allows(tampered: Tampered, depth: int) -> None:
    output = tampered.all("output", lambda e: e.a == 1)[0]
    output.c = depth
    assert_first(tampered, "S8", output)


def test_s8_finds_a_first_output_that_is_not_at_full_depth(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.a == 0)[0]
    output.c = 3
    finding = assert_first(tampered, "S8", output)
    assert finding.evidence["allowed"] == [4, 4]


def test_s8_finds_an_early_exit_of_a_request_that_wants_none(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 1 and e.a == 1)[0]
    output.c = 3
    assert_first(tampered, "S8", output)


def test_s8_finds_a_depth_that_was_not_the_forced_one(tampered: Tampered) -> None:
    submit = tampered.all("submit", lambda e: e.ref == 0)[0]
    submit.tell(params={**submit.data["params"], "exit_depths": [4, 2, 3, 2]})
    assert_first(tampered, "S8", tampered.all("output", lambda e: e.ref == 0)[2])


def test_s8_finds_a_token_outside_the_vocabulary(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    output.b = 512
    assert_first(tampered, "S8", output)


def test_s8_finds_a_logprob_that_nobody_asked_for(tampered: Tampered) -> None:
    output = tampered.all("output", lambda e: e.ref == 0)[0]
    output.d = -0.5
    assert_first(tampered, "S8", output)


@pytest.mark.parametrize(("ref", "reason"), [(0, "stop"), (5, "length"), (0, "boredom")])
def test_s8_finds_a_finish_reason_that_the_outputs_do_not_give(
    tampered: Tampered, ref: int, reason: str
) -> None:
    finish = tampered.all("finish", lambda e: e.ref == ref)[0]
    finish.tell(finish_reason=reason)
    assert_first(tampered, "S8", finish)
