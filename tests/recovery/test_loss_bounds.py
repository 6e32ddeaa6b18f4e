"""What a kill -9 costs: with each durability, no more than is said of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from told import triggers

import audit
from rlt_fsm import Engine, EventLog
from rlt_fsm.recorder import GATHERED_EVENTS, GROUP_EVENTS, GROUP_MS
from runner.sim import SimRunner

TESTS = Path(__file__).resolve().parents[1]


def killed(path, durability, place, *, steps=0, rows=4, batch_ms=0.0, commit_ms=0.0):
    """A process that died (see `recovery.dying`): the last seq of the steps that had ended, the
    last seq of all, and the seqs that survived.
    """
    arguments = [path, durability, place, steps, rows, batch_ms, commit_ms]
    done = subprocess.run(
        [sys.executable, "-m", "recovery.dying", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    ended, last = map(int, done.stdout.split())
    with EventLog.open_for_reading(path) as log:
        survived = [event[0] for event in log.reader().events(1)]
    assert survived == list(range(1, len(survived) + 1))
    return ended, last, len(survived)


@pytest.mark.parametrize("durability", ["step", "group"])
def test_whoever_was_added_before_a_kill_is_in_the_log(tmp_path, durability):
    _, last, survived = killed(tmp_path / "run.db", durability, "after-add")
    assert survived == last == 5  # open, four submits


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_with_durability_step_nothing_is_lost_of_a_step_that_has_ended(tmp_path, steps):
    ended, last, survived = killed(tmp_path / "run.db", "step", "after-step", steps=steps)
    assert survived == ended == last


def test_with_durability_step_a_plan_is_in_the_log_before_it_is_computed(tmp_path):
    path = tmp_path / "run.db"
    ended, last, survived = killed(path, "step", "in-batch", steps=5)
    assert survived == last > ended
    with EventLog.open_for_reading(path) as log:
        assert triggers(log)[-1] == "submit_batch"


@pytest.mark.parametrize("steps", [3, 141])
@pytest.mark.parametrize("rows", [30, 100])
def test_with_durability_group_fewer_events_than_its_bound_are_lost(tmp_path, rows, steps):
    ended, _, survived = killed(tmp_path / "run.db", "group", "after-step", steps=steps, rows=rows)
    assert ended - survived < GROUP_EVENTS


@pytest.mark.parametrize("commit_ms", [1, 20, 80])
def test_nor_where_a_slow_disk_works_beside_the_engine(tmp_path, commit_ms):
    many = {"steps": 60, "rows": 100, "batch_ms": 1}
    path = tmp_path / "run.db"
    ended, last, survived = killed(path, "group", "after-step", **many, commit_ms=commit_ms)
    assert ended - survived < GROUP_EVENTS
    assert survived < last, "some of it was on its way"


def test_with_durability_group_nothing_is_lost_of_steps_longer_than_its_bound(tmp_path):
    slow = {"steps": 4, "batch_ms": GROUP_MS + 1}
    ended, last, survived = killed(tmp_path / "run.db", "group", "after-step", **slow)
    assert survived == ended == last


def test_while_a_batch_is_computed_what_has_gathered_before_it_is_durable(tmp_path):
    ended, last, survived = killed(tmp_path / "run.db", "group", "in-batch", steps=60, rows=100)
    assert ended - survived < GATHERED_EVENTS
    assert survived <= ended < last


def test_with_durability_off_a_kill_costs_the_whole_run(tmp_path):
    assert killed(tmp_path / "run.db", "off", "after-step", steps=9)[2] == 0


def test_a_run_that_was_killed_with_a_group_open_is_recovered_and_audited_clean(tmp_path):
    path = tmp_path / "run.db"
    killed(path, "group", "in-batch", steps=30, rows=40)
    with Engine.recover(path, SimRunner(max_model_len=408)) as engine:
        for _ in range(20):
            engine.step()
    assert audit.verify(path).ok
