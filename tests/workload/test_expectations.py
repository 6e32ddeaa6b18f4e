import pytest

from rlt_fsm.drive import DriveResult, RequestResult, check
from rlt_fsm.workload import Expect


def request(request_id, generation=1, **changes):
    return RequestResult(
        request_id=request_id, generation=generation, prompt_token_ids=(1,), **changes
    )


RESULT = DriveResult(
    requests=(
        request("done", token_ids=(5, 6), exit_depths=(4, 2), finish_reason="length"),
        request("gone", finish_reason="abort"),
        request("no", refused="empty-prompt", message="prompt_token_ids is empty"),
        request("done", 2, finish_reason="stop", token_ids=(0,), exit_depths=(4,)),
        request("live"),
    ),
    steps=7,
    preemptions=2,
    cut_off=False,
)


def test_what_holds_says_nothing():
    expect = Expect(
        finish={"done": "length", "done#1": "length", "done#2": "stop"},
        abort=("gone",),
        refuse=("no",),
        outputs={"done": 2, "done#2": 1, "gone": 0},
        max_preemptions=2,
        notes=("for people",),
    )
    assert check(expect, RESULT) == []


def test_requests_that_are_not_named_may_end_in_any_way():
    assert check(Expect(), RESULT) == []


@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        (
            Expect(finish={"done": "stop"}),
            "done: expected to finish with stop, it ended with length",
        ),
        (
            Expect(finish={"no": "length"}),
            "no: expected to finish with length, it was refused (empty-prompt)",
        ),
        (
            Expect(finish={"live": "length"}),
            "live: expected to finish with length, it has not ended",
        ),
        (Expect(abort=("done",)), "done: expected to be aborted, it ended with length"),
        (Expect(refuse=("gone",)), "gone: expected to be refused, it ended with abort"),
        (Expect(outputs={"done#2": 2}), "done#2: expected 2 outputs, got 1"),
        (Expect(finish={"done#3": "stop"}), "done#3: no such request was added"),
        (Expect(max_preemptions=1), "max_preemptions: expected at most 1, got 2"),
    ],
)
def test_what_does_not_hold_is_one_sentence(expect, sentence):
    assert check(expect, RESULT) == [sentence]


def test_a_run_that_was_cut_off_fails():
    cut = DriveResult(requests=(), steps=9, preemptions=0, cut_off=True)
    assert check(Expect(), cut) == ["max_steps: requests were still live after 9 steps"]
