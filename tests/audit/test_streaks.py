"""Streaks judged at one go come to the very report of events judged one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from mutations import SCENES, corrupted
from random_runs import random_run
from reseal import Tampered

from audit.reader import open_log
from audit.run_pass import Pass
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner


def reports(path: Path, run: int = 1) -> list[object]:
    """One by one, and by streaks; without the time they took."""
    told = []
    for one_by_one in (True, False):
        with open_log(path) as log:
            report = Pass(log.run(run), one_by_one=one_by_one).whole_run()
        told.append({**msgspec.to_builtins(report), "seconds": None})
    return told


@pytest.fixture(scope="module")
def wide_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 requests at once: streaks as long as the batches, stops, logprobs, early exits, an abort
    and a device failure among them.
    """
    path, runner = tmp_path_factory.mktemp("wide") / "run.db", SimRunner()
    config = from_mapping({"scheduler": {"max_num_seqs": 40}, "cache": {"num_blocks": 4000}})
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
    one_by_one, together = reports(wide_log)
    assert one_by_one == together
    assert together["verdict"] == "clean"


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
    one_by_one, together = reports(log.seal())
    assert one_by_one == together


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_random_runs(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        if random_run(seed, whole_scheduler=True, log=log) is None:
            pytest.skip("this seed draws a configuration that is refused")
    one_by_one, together = reports(path)
    assert one_by_one == together


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("seed", range(4))
def test_random_corruptions(tmp_path: Path, scene: str, seed: int) -> None:
    one_by_one, together = reports(corrupted(scene, seed, tmp_path).path)
    assert one_by_one == together
