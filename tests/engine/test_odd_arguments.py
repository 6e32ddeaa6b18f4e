"""Whatever is passed to a public constructor or function: it works, or one sentence says why not.

Every parameter of every signature is tried, so that a new one cannot be forgotten.
"""

import asyncio
import inspect
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import torch

import audit
from audit.shrinking.symptoms import Observed, Symptom
from rlt_fsm import AsyncEngine, Engine, EngineConfig, EventLog, RltError, SamplingParams
from runner import LLM, SimRunner, TorchRunner


class Strange:
    """A value that nobody expects."""


ODD_VALUES = [
    None, True, False, 0, -1, 1, 3, 2**70, 10**400, 1.5, -0.5, float("nan"), float("inf"), 1j, "",
    "x", "a/b", "-x", "cuda:99", "\0", "\ud800", "x" * 5000, b"x", [], [1], ["x"], (), {}, {1},
    {"a": 1}, Path("nowhere"), Path(), Strange(), Strange, np.int64(3), np.float32(0.5),
    np.array([1, 2]), np.array(3), torch.tensor(2), torch.tensor([0.5, 1]), SamplingParams(),
    EngineConfig(), EventLog.memory(), SimRunner,
]  # fmt: skip


def finished(runner: SimRunner) -> None:
    with Engine(runner) as engine:
        engine.add_request("a", [1, 1], SamplingParams(max_tokens=2))
        while engine.has_unfinished_requests():
            engine.step()


def sim_runner(**given: object) -> None:
    finished(SimRunner(**given))


def engine(**given: object) -> None:
    Engine(**given).close()


def async_engine(**given: object) -> None:
    async def main() -> None:
        await AsyncEngine(**given).close()

    asyncio.run(main())


def recover(**given: object) -> None:
    Engine.recover(**given).close()


def llm(**given: object) -> None:
    LLM(**given).close()


def torch_runner(**given: object) -> None:
    Engine(TorchRunner(**given)).close()


def opened(**given: object) -> None:
    EventLog.open(**given).close()


def opened_for_reading(**given: object) -> None:
    EventLog.open_for_reading(**given).close()


def audit_log(**given: object) -> None:
    audit.open_log(**given).close()


def replayed(**given: object) -> None:
    audit.replay(**given).close()


def state_at(**given: object) -> None:
    with closing(audit.replay("a.db")) as replay:
        replay.at(**given)


def observe(_: bytes) -> Observed:
    """A caller's own function."""
    shown = {Symptom(kind="finding", what="S7", place="output"): "so"}
    return Observed(symptoms=shown, step=1, steps=2, digests=())


# (what is called for, what reads its parameters, arguments that work)
CALLS: list[tuple[Callable[..., object], Callable[..., object], dict[str, object]]] = [
    (sim_runner, SimRunner, {}),
    (engine, Engine, {"runner": SimRunner()}),
    (async_engine, AsyncEngine, {}),
    (recover, Engine.recover, {"db": "a.db", "runner": SimRunner()}),
    (llm, LLM, {"model": "demo", "device": "cpu"}),
    (torch_runner, TorchRunner, {"model": "demo", "device": "cpu"}),
    (opened, EventLog.open, {"url_or_path": "new.db"}),
    (opened_for_reading, EventLog.open_for_reading, {"url_or_path": "a.db"}),
    (audit_log, audit.open_log, {"db": "a.db"}),
    (audit.verify, audit.verify, {"db": "a.db"}),
    (audit.diff, audit.diff, {"a": "a.db", "b": "b.db"}),
    (audit.first_difference, audit.first_difference, {"a": "a.db", "b": "b.db"}),
    (replayed, audit.replay, {"db": "a.db"}),
    (state_at, audit.Replay.at, {}),
    (audit.watch, audit.watch, {"db": "a.db", "patience_s": 0.01}),
    (audit.compare, audit.compare, {"base": ".", "head": ".", "workloads": ["none.json"]}),
    (audit.shrink, audit.shrink, {"workload": "{}", "observe": observe}),
]
CALLED = {"observe", "progress", "found", "seen", "tell"}
CASES = [
    pytest.param(call, base, name, id=f"{call.__name__}-{name}")
    for call, declared, base in CALLS
    for name in inspect.signature(declared).parameters
    if name != "self"
]


def refusal(call: Callable[..., object], given: dict[str, object]) -> str | None:
    try:
        call(**given)
    except RltError as error:
        return str(error)
    return None


@pytest.fixture
def two_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    for name in ("a.db", "b.db"):
        with EventLog.open(name) as log, Engine(SimRunner(), log=log) as one:
            one.add_request("a", [1, 1], SamplingParams(max_tokens=2))
            while one.has_unfinished_requests():
                one.step()


@pytest.mark.usefixtures("two_logs")
@pytest.mark.parametrize(("call", "base", "name"), CASES)
def test_an_odd_argument_is_taken_or_refused_in_one_sentence(call, base, name):
    refused = 0
    for value in ODD_VALUES:
        if name in CALLED and callable(value):
            continue  # what a caller's own function does is the caller's
        given = {**base, name: value}
        if call is async_engine and name != "engine":
            given["engine"] = Engine(SimRunner())
        sentence = refusal(call, given)
        refused += sentence is not None
        assert sentence is None or (sentence.strip() and "\n" not in sentence), value
    assert refused, "some of these can never be right"


def test_a_class_in_place_of_a_runner_is_named():
    with pytest.raises(RltError, match=r"runner=SimRunner: this is a class; give SimRunner\(...\)"):
        Engine(SimRunner)


def test_nothing_in_place_of_a_runner_is_named():
    with pytest.raises(RltError, match=r"runner=None: has no start\(\): give a Runner"):
        Engine(None)


def test_a_model_without_loops_is_refused_by_its_number():
    with pytest.raises(RltError, match="depths=0: must be a whole number from 1 to 1,024"):
        SimRunner(depths=0)


def test_what_is_refused_opens_and_closes_nothing(tmp_path):
    with EventLog.open(tmp_path / "run.db") as log:
        with suppress(RltError):
            Engine(SimRunner(), log=log, verdicts=1)
        assert log.reader().runs() == []
