"""Arguments of another kind than `LLM` takes: one sentence, and nothing has run."""

import pytest

from rlt_fsm import RltError
from runner import LLM


def test_prompts_may_come_from_a_generator():
    with LLM("demo", device="cpu") as llm:
        assert len(llm.generate([5, 6 + i] for i in range(3))) == 3


def test_half_of_a_surrogate_pair_is_no_text():
    with LLM("demo", device="cpu") as llm:
        with pytest.raises(RltError, match="half of a surrogate pair"):
            llm.generate(["1+1=", "\ud800"])
        assert llm.engine.current_step == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": None}, "model=None: must be a path: give 'demo', a folder or a hub id"),
        ({"model": ""}, "model=''"),
        (
            {"model": "demo", "max_model_len": "x"},
            "max_model_len='x': must be a whole number from 1 to 128",
        ),
        (
            {"model": "demo", "max_model_len": True},
            "max_model_len=True: must be a whole",
        ),
        ({"model": "demo", "db": 5}, "the log's path is 5"),
        ({"model": "demo", "config": {}}, "must be an EngineConfig"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_its_name(given, words):
    with pytest.raises(RltError, match=words):
        LLM(**given)
