"""Each impossible request is refused alone, with numbers, and leaves the engine as it was."""

import json

import pytest
import told

from rlt_fsm import (
    CacheConfig,
    Engine,
    EngineConfig,
    EventLog,
    ExitConfig,
    RequestRefused,
    SamplingParams,
    SchedulerConfig,
)
from runner import SimRunner

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=64, block_size=4))


def engine(config: EngineConfig = CONFIG) -> Engine:
    return Engine(SimRunner(depths=4, vocab_size=100, max_model_len=64), config)


P = SamplingParams
CASES = [
    ("empty-prompt", [], P(), "give 1 token or more"),
    ("out-of-vocabulary", [5, 100], P(), r"\[1\]=100 is outside the vocabulary of 100"),
    ("out-of-vocabulary", [-1], P(), "outside the vocabulary"),
    ("not-a-token", [1, "2"], P(), r"prompt_token_ids\[1\]='2' is no token id"),
    ("not-a-token", [True], P(), "whole numbers"),
    ("max-tokens", [1], P(max_tokens=0), "max_tokens=0 must be 1 or more"),
    ("type", [1], P(max_tokens=2.5), "max_tokens=2.5 must be a whole number"),  # type: ignore[arg-type]
    (
        "min-tokens",
        [1],
        P(max_tokens=2, min_tokens=3),
        r"min_tokens=3 must be in \[0, max_tokens=2",
    ),
    ("context", [1] * 60, P(max_tokens=6), "= 65 positions exceed max_model_len=64"),
    ("temperature", [1], P(temperature=-0.5), "temperature=-0.5 must be 0"),
    ("type", [1], P(temperature=float("nan")), "must be finite"),
    ("top-p", [1], P(top_p=0.0), r"top_p=0.0 must be in \(0, 1\]"),
    ("top-k", [1], P(top_k=0), "top_k=0 must be -1"),
    ("seed", [1], P(seed=-1), "seed=-1 must be in"),
    ("logprobs", [1], P(logprobs=3), "logprobs=3 must be None, or 0"),
    ("loops", [1], P(min_loops=3, max_loops=2), "must satisfy 1 <= min_loops <= max_loops <= 4"),
    ("loops", [1], P(max_loops=5), "the model's depth"),
    ("exit-threshold", [1], P(exit_threshold=1.5), r"exit_threshold=1.5 must be in \[0, 1\]"),
    ("exit-depths", [1], P(max_tokens=3, exit_depths=(4, 2)), "has 2 entries and max_tokens is 3"),
    ("exit-depths", [1], P(max_tokens=2, exit_depths=(2, 2)), r"exit_depths\[0\]=2 must be in"),
    ("exit-depths", [1], P(max_tokens=2, exit_depths=(4, 1)), r"exit_depths\[1\]=1 must be in"),
    ("stop-token", [1], P(stop_token_ids=(100,)), "outside the vocabulary of 100"),
]


@pytest.mark.parametrize(("code", "prompt", "params", "sentence"), CASES)
def test_an_impossible_request_is_refused_with_its_numbers_and_recorded(
    code: str, prompt: list[int], params: SamplingParams, sentence: str
) -> None:
    with engine() as subject:
        with pytest.raises(RequestRefused, match=sentence) as caught:
            subject.add_request("r", prompt, params)
        assert caught.value.code == code
        assert not subject.has_unfinished_requests()
        assert not subject.state.by_ref
        subject.add_request("ok", [1, 2], P(max_tokens=2))
        while subject.has_unfinished_requests():
            subject.step()


def test_a_request_that_needs_more_blocks_than_the_pool_has_names_both_numbers() -> None:
    small = EngineConfig(cache=CacheConfig(num_blocks=12, block_size=4))
    with engine(small) as subject, pytest.raises(RequestRefused, match=r"16 KV blocks.*has 12"):
        subject.add_request("r", [1] * 8, P(max_tokens=6))


def test_a_live_id_is_refused_and_its_owner_goes_on() -> None:
    with engine() as subject:
        subject.add_request("a", [1, 2], P(max_tokens=3))
        with pytest.raises(RequestRefused, match="this id is live") as caught:
            subject.add_request("a", [3], P())
        assert caught.value.code == "duplicate"
        outputs = []
        while subject.has_unfinished_requests():
            outputs += subject.step()
        assert len(outputs) == 3
        assert outputs[-1].finish_reason == "length"


def test_a_full_waiting_queue_refuses_until_somebody_is_admitted() -> None:
    config = EngineConfig(scheduler=SchedulerConfig(max_num_seqs=1, max_waiting=1))
    with engine(config) as subject:
        subject.add_request("a", [1], P(max_tokens=1))
        with pytest.raises(RequestRefused, match="max_waiting=1") as caught:
            subject.add_request("b", [1], P(max_tokens=1))
        assert caught.value.code == "queue-full"
        subject.step()
        subject.add_request("b", [1], P(max_tokens=1))


def test_trace_mode_needs_exit_depths_with_every_request() -> None:
    config = EngineConfig(exit=ExitConfig(mode="trace"))
    with engine(config) as subject, pytest.raises(RequestRefused, match="needs exit_depths"):
        subject.add_request("a", [1], P())


def test_a_refusal_is_a_row_of_the_log_and_counts_as_a_generation() -> None:
    log = EventLog.memory()
    with Engine(SimRunner(), CONFIG, log) as subject:
        with pytest.raises(RequestRefused):
            subject.add_request("a", [], P())
        subject.add_request("a", [1], P(max_tokens=1))
        assert subject.state.by_id["a"].spec.generation == 2
    (row,) = [row for trigger, row in told.events(log) if trigger == "refuse"]
    assert row.reason == "empty-prompt prompt_len=0"
    assert json.loads(row.extra)["prompt_token_ids"] == []


@pytest.mark.parametrize("request_id", ["", 7])
def test_an_id_must_be_a_string_with_something_in_it(request_id: object) -> None:
    with engine() as subject, pytest.raises(RequestRefused) as caught:
        subject.add_request(request_id, [1], P())  # type: ignore[arg-type]
    assert caught.value.code == "request-id"


def test_an_open_seed_is_drawn_at_the_door_and_recorded() -> None:
    with engine() as subject:
        subject.add_request("a", [1], P(seed=None))
        seed = subject.state.by_id["a"].spec.params.seed
        assert seed is not None
        assert 0 <= seed < 2**63
