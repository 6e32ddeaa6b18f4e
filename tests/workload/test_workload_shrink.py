"""Delta debugging: what is left still fails, and nothing in it could be dropped or lowered."""

from copy import deepcopy

import pytest

from rlt_fsm.workload_shrink import shrink

BIG = {
    "format": "rlt-workload/1",
    "name": "big",
    "seed": 7,
    "config": {
        "scheduler": {"mode": "mixed", "max_num_seqs": 4},
        "cache": {"num_blocks": 40},
    },
    "requests": [
        {"id": f"r{i}", "at": 3 * i, "prompt_len": i + 1, "max_tokens": 6, "priority": i % 3}
        for i in range(10)
    ],
    "actions": [{"at": 4, "abort": "r2"}, {"at": 9, "fail": True}],
    "expect": {"max_steps": 200},
}

FAULT = {"at": 9, "fail": True}


def ids(workload):
    return [request.get("id") for request in workload.get("requests", [])]


def test_requests_and_actions_that_do_not_matter_are_dropped():
    small = shrink(BIG, lambda w: {"r3", "r8"} <= set(ids(w)) and FAULT in w.get("actions", ()))
    assert ids(small) == ["r3", "r8"]
    assert small["actions"] == [FAULT]


def test_configuration_goes_back_to_its_defaults_where_it_does_not_matter():
    small = shrink(BIG, lambda w: w.get("config", {}).get("cache", {}).get("num_blocks", 0) > 12)
    assert small == {
        "format": "rlt-workload/1",
        "name": "big",
        "config": {"cache": {"num_blocks": 13}},
        "expect": {"max_steps": 200},
    }


def test_numbers_are_lowered_as_far_as_the_failure_allows():
    def fails(workload):
        requests = workload.get("requests", [])
        return sum(request.get("prompt_len", 0) for request in requests) >= 17

    small = shrink(BIG, fails)
    assert sum(request["prompt_len"] for request in small["requests"]) == 17
    assert all(set(request) == {"prompt_len"} for request in small["requests"])


def test_lists_inside_a_request_get_shorter():
    big = {"requests": [{"id": "a", "exit_depths": [4, 2, 3, 4, 2]}]}
    small = shrink(big, lambda w: "3" in str(w))
    assert small == {"requests": [{"exit_depths": [3]}]}


def test_what_names_and_bounds_the_run_is_kept():
    small = shrink(BIG, lambda _: True)
    assert small == {"format": "rlt-workload/1", "name": "big", "expect": {"max_steps": 200}}


def test_keys_that_go_together_are_dropped_together():
    big = {"requests": [{"id": "a", "prompt_like": "b", "shared_len": 3}]}

    def fails(workload):
        first = workload["requests"][0]
        return "id" in first and ("prompt_like" in first) == ("shared_len" in first)

    assert shrink(big, lambda w: bool(w.get("requests")) and fails(w)) == {
        "requests": [{"id": "a"}]
    }


def test_the_workload_that_was_given_is_left_alone():
    before = deepcopy(BIG)

    def fails(workload):
        workload.clear()
        return True

    shrink(BIG, fails)
    assert before == BIG


def test_the_same_failure_gives_the_same_small_workload():
    def fails(workload):
        return len(workload.get("requests", [])) >= 2 and workload.get("seed") != 3

    assert shrink(BIG, fails) == shrink(BIG, fails)


@pytest.mark.parametrize("allowed", [0, 1, 5, 40])
def test_the_number_of_trials_is_bounded_and_no_candidate_is_tried_twice(allowed):
    tried = []

    def fails(workload):
        tried.append(repr(workload))
        return len(workload.get("requests", [])) >= 2

    small = shrink(BIG, fails, max_trials=allowed)
    assert len(tried) <= allowed
    assert len(set(tried)) == len(tried)
    assert len(small["requests"]) >= 2
