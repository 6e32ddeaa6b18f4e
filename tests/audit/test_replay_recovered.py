"""`rlt-audit replay` of runs that were recovered after a crash: the crash is one more input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recovery.cuts import first_events
from recovery.scenes import SCENES, serve, sim, wanted, whole_run
from typer.testing import CliRunner

import audit
from audit.cli import app
from rlt_fsm import Engine, EventLog
from rlt_fsm.workload import Workload
from runner.recorded import Redrive
from runner.simulate_check import run_logged
from runner.simulate_workloads import random_workload


def crashing(seeds: range) -> list[tuple[int, Workload]]:
    """The workloads of these seeds that crash, once or several times."""
    drawn = [(seed, random_workload(seed, crashes=True)) for seed in seeds]
    return [(seed, load) for seed, load in drawn if any(action.crash for action in load.actions)]


def triggers(log: EventLog) -> list[str]:
    reader = log.reader()
    names = {row.move: row.trigger for row in reader.moves(1)}
    return [names[event[5]] for event in reader.events(1)]


@pytest.mark.parametrize("first_seed", range(0, 160, 40))
def test_the_same_revision_gives_the_same_digest_over_crashes(first_seed: int) -> None:
    recoveries = 0
    for seed, workload in crashing(range(first_seed, first_seed + 40)):
        with EventLog.memory() as log, EventLog.memory() as again:
            run_logged(workload, log, check=False)
            recoveries += triggers(log).count("recover")
            made = Redrive(log, 1, {}).run(again)
            assert again.reader().runs()[0].digest == log.reader().runs()[0].digest, seed
            assert triggers(again) == triggers(log)
            assert made.unrecorded == {}
    assert recoveries >= 3


@pytest.mark.parametrize("scene", SCENES)
def test_wherever_a_run_broke_off_it_is_driven_again_and_between_steps_identical(
    scene: str,
) -> None:
    whole = whole_run(scene)
    steps = [event[1] for event in whole.reader().events(1)]
    for count in range(2, len(steps), 17):
        log = first_events(whole, count)
        with Engine.recover(log, sim()) as engine:
            serve(engine, wanted())
        with EventLog.memory() as again:
            Redrive(log, 1, {}).run(again)
            assert audit.verify(again).ok, count
            if steps[count - 1] != steps[count]:
                assert again.reader().runs()[0].digest == log.reader().runs()[0].digest, count


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that crashed and was recovered, in a file."""
    path = tmp_path_factory.mktemp("crashed") / "run.db"
    seed, workload = crashing(range(40))[0]
    with EventLog.open(path) as log:
        run_logged(workload, log, check=False)
        assert "recover" in triggers(log), seed
    return path


def test_the_command_finds_a_recovered_run_identical(crashed: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    result = CliRunner().invoke(app, ["replay", str(crashed), "-o", str(new), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["diff"]["verdict"] == "identical"
    assert audit.verify(new).ok


def test_a_log_that_is_not_written_cannot_be_recovered_from(crashed: Path) -> None:
    settings = ["--set", "execution.durability=off"]
    result = CliRunner().invoke(app, ["replay", str(crashed), *settings])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "execution.durability='off' writes no log to recover from" in line
