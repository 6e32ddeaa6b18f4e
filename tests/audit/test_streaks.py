"""Streaks judged at one go come to the very report of events judged one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from mutations import SCENES, corrupted
from random_runs import random_run
from reseal import Tampered

from audit.legality import Move
from audit.reader import open_log
from audit.run_pass import Pass
from audit.streaks import ONE_BY_ONE, SHORTEST, Kin, stretches
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.workload import Completion
from runner.sim import SimRunner


def report(path: Path, shortest: int) -> dict[str, object]:
    """What a pass with such streaks says; without the time it took."""
    with open_log(path) as log:
        told = Pass(log.run(1), shortest=shortest).whole_run()
    return {**msgspec.to_builtins(told), "seconds": None}


def assert_same(path: Path) -> dict[str, object]:
    """One by one, by streaks, and by streaks of whatever length."""
    one_by_one = report(path, ONE_BY_ONE)
    assert report(path, SHORTEST) == one_by_one
    assert report(path, 1) == one_by_one
    return one_by_one


@pytest.fixture(scope="module", params=["in turn", "late", "out of order"])
def wide_log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 requests at once: streaks as long as the batches, stops, logprobs, early exits, an abort
    and a device failure among them; asynchronously, in turn or not, too.
    """
    path, execution, completion = tmp_path_factory.mktemp("wide") / "run.db", {}, None
    if request.param != "in turn":
        execution = {"async_scheduling": True, "max_in_flight": 4}
    if request.param == "out of order":
        completion = Completion(order="random", seed=4, max_delay=3)
    runner = SimRunner(completion=completion)
    config = from_mapping(
        {
            "scheduler": {"max_num_seqs": 40},
            "cache": {"num_blocks": 4000},
            "execution": execution,
        }
    )
    with EventLog.open(path) as log, Engine(runner, config, log) as engine:
        for number in range(60):
            params = SamplingParams(
                max_tokens=3 + number % 5,
                exit_threshold=0.5 if number % 3 else 1.0,
                stop_token_ids=tuple(range(1, 60)) if number % 7 == 0 else (),
                logprobs=0 if number % 11 == 0 else None,
            )
            engine.add_request(f"r{number}", [number + 1] * (1 + number % 9), params)
        for step in range(500):
            if step == 21:
                engine.abort_request("r5")
            if step == 33:
                runner.fail_next()
            engine.step()
    return path


def test_a_clean_run_with_long_streaks(wide_log: Path) -> None:
    assert assert_same(wide_log)["verdict"] == "clean"


def _wrong(name: str, change: Callable[[object], None]) -> object:
    return pytest.param(change, id=name)


@pytest.mark.parametrize("trigger", ["select", "enqueue", "output"])
@pytest.mark.parametrize(
    "change",
    [
        _wrong("a", lambda event: setattr(event, "a", (event.a or 0) + 1)),
        _wrong("b", lambda event: setattr(event, "b", (event.b or 0) + 1)),
        _wrong("c", lambda event: setattr(event, "c", (event.c or 0) + 1)),
        _wrong("d", lambda event: setattr(event, "d", (event.d or 0) + 1)),
        _wrong("e", lambda event: setattr(event, "e", 1)),
        _wrong("nothing", lambda event: setattr(event, "b", None)),
        _wrong("blocks", lambda event: setattr(event, "blocks", event.blocks + 1)),
        _wrong("cause", lambda event: setattr(event, "cause", event.cause - 1)),
        _wrong("ticket", lambda event: setattr(event, "ticket", event.ticket + 1)),
        _wrong("ref", lambda event: setattr(event, "ref", (event.ref + 1) % 60)),
        _wrong("step", lambda event: setattr(event, "step", event.step + 1)),
    ],
)
def test_one_wrong_cell_in_a_long_streak(
    wide_log: Path, tmp_path: Path, trigger: str, change: Callable[[object], None]
) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(wide_log.read_bytes())
    log = Tampered(path)
    events = log.all(trigger, lambda event: event.step > 40)
    change(events[len(events) // 2])
    assert_same(log.seal())


@pytest.mark.parametrize("kind", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_random_runs(tmp_path: Path, seed: int, kind: str) -> None:
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        if random_run(seed, whole_scheduler=True, is_async=kind == "asynchronous", log=log) is None:
            pytest.skip("this seed draws a configuration that is refused")
    assert_same(path)


@pytest.mark.parametrize("scene", [*SCENES, "async"])
@pytest.mark.parametrize("seed", range(6))
def test_random_corruptions(tmp_path: Path, scene: str, seed: int) -> None:
    assert_same(corrupted(scene, seed, tmp_path).path)


def test_those_who_go_on_and_those_who_leave_their_loops_in_turn_are_one_stretch() -> None:
    edges = ("QUEUED:DECODE_RECURRENT", "QUEUED:DECODE_CODA")
    on, leave = (
        Move("enqueue", None, ("TAKEN:DECODE_RECURRENT", dest), None, None) for dest in edges
    )
    other = Move("enqueue", None, ("TAKEN:DECODE_CODA", "QUEUED:DECODE_PRELUDE"), None, None)
    moves = [1, 2, 1, 1, 2, 3, 3]
    assert [*stretches(moves, Kin({1: on, 2: leave, 3: other}))] == [(0, 5), (5, 7)]
