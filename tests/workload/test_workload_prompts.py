import pytest

from rlt_fsm import WorkloadError
from rlt_fsm.prompts import made_prompt, prompts, script
from rlt_fsm.workload import parse


def test_made_prompts_never_change():
    assert made_prompt(0, "a", 5, 512) == (406, 115, 56, 265, 480)
    assert made_prompt(7, "a", 5, 512) == (41, 307, 472, 131, 231)


def test_made_prompts_hold_no_eos_even_in_the_smallest_vocabulary():
    assert made_prompt(0, "b", 3, 2) == (1, 1, 1)
    assert 0 not in made_prompt(0, "c", 5000, 16)
    assert set(made_prompt(0, "c", 5000, 16)) == set(range(1, 16))


def test_a_longer_prompt_of_an_id_begins_with_the_shorter_one():
    assert made_prompt(0, "a", 9, 512)[:5] == made_prompt(0, "a", 5, 512)


def test_prompt_like_shares_the_first_tokens_and_no_more(workload_text):
    text = workload_text(
        requests=[
            {"id": "late", "at": 9, "prompt_len": 6, "prompt_like": "seed", "shared_len": 4},
            {"id": "seed", "prompt_len": 8},
            {"id": "last", "prompt_len": 6, "prompt_like": "late", "shared_len": 5},
        ]
    )
    late, seed, last = prompts(parse(text))
    assert late == seed[:4] + made_prompt(0, "late", 6, 512)[4:]
    assert last[:5] == late[:5]


def test_prompt_like_may_name_a_generation(workload_text):
    text = workload_text(
        requests=[
            {"id": "a", "prompt": [1, 2, 3]},
            {"id": "a", "at": 5, "prompt": [7, 8, 9]},
            {"id": "b", "prompt_len": 3, "prompt_like": "a#2", "shared_len": 2},
        ]
    )
    assert prompts(parse(text))[2][:2] == (7, 8)


def test_prompt_like_in_a_circle_is_refused(workload_text):
    text = workload_text(
        requests=[
            {"id": "a", "prompt_len": 3, "prompt_like": "b", "shared_len": 1},
            {"id": "b", "prompt_len": 3, "prompt_like": "a", "shared_len": 1},
        ]
    )
    with pytest.raises(WorkloadError, match="leads back to itself"):
        prompts(parse(text))


def test_sharing_more_than_there_is_is_refused(workload_text):
    text = workload_text(
        requests=[
            {"id": "a", "prompt_len": 2},
            {"id": "b", "prompt_len": 9, "prompt_like": "a", "shared_len": 3},
        ]
    )
    with pytest.raises(WorkloadError, match="shared_len 3 is more than the 2 prompt tokens of 'a'"):
        prompts(parse(text))


def test_scripts_name_the_generation_in_order_of_arrival(workload_text):
    text = workload_text(
        requests=[
            {"id": "a", "at": 5, "prompt_len": 3, "eos_at": 2},
            {"id": "a", "at": 0, "prompt_len": 3, "stop_at": 1, "params": {"stop_token_ids": [9]}},
        ]
    )
    assert script(parse(text)) == {("a", 2): {1: 0}, ("a", 1): {0: 9}}
