"""Whatever a caller passes: plain values are served, the rest is refused and recorded, and goes on.

One careless or hostile request must not end the engine for the others.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, RequestRefused, SamplingParams
from rlt_fsm.events import Refused
from rlt_fsm.replay import recorded
from runner import SimRunner

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=64, block_size=4))


def kind_of(value: object) -> str:
    """A name that is the same in every process; a repr may show an address."""
    return type(value).__name__


class Strange:
    """A value that no log can hold."""


ODD_VALUES = [
    Strange(), Strange, b"x", "\ud800", "a b=c", {}, {"a": 1}, {1}, object(), 1 + 2j, True, False,
    2**63, 2**70, -(2**70), 2**20_000, float("nan"), float("inf"), -float("inf"), 1e308, -0.0,
    Fraction(1, 3), np.float32(0.5), np.int64(3), np.True_, np.array(3), np.array([[1.5]]),
    torch.tensor(2), torch.tensor(0.5), [1, Strange()], (None,), [[1]], iter([Strange()]), "", None,
]  # fmt: skip
FIELDS = SamplingParams.__struct_fields__


def survives(add: Callable[[Engine], None]) -> str | None:
    """The code of the refusal, if there was one; the engine must serve the next and audit clean."""
    log, code = EventLog.memory(), None
    with Engine(SimRunner(), CONFIG, log) as engine:
        try:
            add(engine)
        except RequestRefused as refused:
            code = refused.code
        engine.add_request("next", [1, 2], SamplingParams(max_tokens=2))
        finished = [
            output.request_id
            for _ in range(200)
            if engine.has_unfinished_requests()
            for output in engine.step()
            if output.finished
        ]
    assert "next" in finished
    assert audit.verify(log).verdict == "clean"
    refusals = [item.fact for item in recorded(log.reader(), 1) if isinstance(item.fact, Refused)]
    assert [fact.reason.split()[0] for fact in refusals] == ([] if code is None else [code])
    for fact in refusals:  # a code, then key=value, whatever was given
        assert all("=" in word for word in fact.reason.split()[1:])
    return code


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_parameter_ends_the_engine(field: str) -> None:
    for value in ODD_VALUES:
        params = SamplingParams(**{"max_tokens": 4, field: value})  # type: ignore[arg-type]
        survives(lambda engine, params=params: engine.add_request("a", [1], params))


@pytest.mark.parametrize(
    "prompt",
    [None, 5, "12", {1: 2}, {1, 2}, Strange(), [Strange()], ["\ud800"], [[1]], [2**70], [1.0],
     [np.float32(1)], np.array([[1, 2]]), np.array(1), torch.tensor(1), [True], [None]],
    ids=kind_of,
)  # fmt: skip
def test_a_prompt_that_is_no_list_of_token_ids_is_refused_and_recorded(prompt: object) -> None:
    code = survives(lambda engine: engine.add_request("a", prompt))  # type: ignore[arg-type]
    assert code in {"not-a-prompt", "not-a-token"}


@pytest.mark.parametrize("params", ["no", {"max_tokens": 3}, 7, Strange()], ids=kind_of)
def test_params_of_another_class_are_refused_and_recorded(params: object) -> None:
    code = survives(lambda engine: engine.add_request("a", [1], params))  # type: ignore[arg-type]
    assert code == "type"


@pytest.mark.parametrize("request_id", [None, 7, b"a", ["a"], Strange(), "\ud800", ""], ids=kind_of)
def test_a_request_id_that_is_no_text_is_refused_and_recorded(request_id: object) -> None:
    code = survives(lambda engine: engine.add_request(request_id, [1]))  # type: ignore[arg-type]
    assert code == "request-id"


@pytest.mark.parametrize(
    "request_id", ["a\0b", "a\nb", "a#2", "'; drop table run_log; --", "{}", "é😀", "x" * 100_000]
)
def test_any_text_is_a_request_id(request_id: str) -> None:
    assert survives(lambda engine: engine.add_request(request_id, [1])) is None


@pytest.mark.parametrize("request_id", [None, ["a"], {}, 7, "\ud800"], ids=kind_of)
def test_aborting_what_is_no_request_id_is_false_and_no_event(request_id: object) -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        seq = engine.state.seq
        assert engine.abort_request(request_id) is False  # type: ignore[arg-type]
        assert engine.state.seq == seq


@pytest.mark.parametrize(
    "prompt", [np.array([1, 2, 3]), torch.tensor([1, 2, 3]), [np.int64(1), 2, 3], range(1, 4)]
)
def test_numbers_of_numpy_and_torch_are_numbers(prompt: object) -> None:
    params = SamplingParams(
        max_tokens=np.int64(2),  # type: ignore[arg-type]
        exit_threshold=np.float32(0.5),  # type: ignore[arg-type]
        exit_depths=np.array([4, 2]),  # type: ignore[arg-type]
        stop_token_ids=[7],  # type: ignore[arg-type]
    )
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("a", prompt, params)  # type: ignore[arg-type]
        spec = engine.state.by_id["a"].spec
    assert spec.prompt_token_ids == (1, 2, 3)
    assert spec.params == SamplingParams(
        max_tokens=2, exit_threshold=0.5, exit_depths=(4, 2), stop_token_ids=(7,)
    )
    assert {type(token) for token in spec.prompt_token_ids} == {int}
