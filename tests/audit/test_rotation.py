"""What is old in a log is moved into a folder, turn after turn, and what is wrong costs nothing."""

import itertools
import shutil
from contextlib import suppress

import pytest
from disks import mounted
from recovery.scenes import SCENES, config_of, serve, sim, wanted, whole_run
from rotating import (
    KEEP,
    archives_in,
    changed,
    events_of,
    left_in,
    meanwhile,
    parts_of,
    rotator,
    spoil,
)

import audit
from audit import rotator as rotating
from audit.archive import NotVerifiedError
from audit.rotator import NotStoredError
from audit.run_pass import Pass
from rlt_fsm import Engine, EventLog
from rlt_fsm.errors import LogError
from rlt_fsm.log import archiving

# ---- turns ---------------------------------------------------------------------------------------


def test_a_turn_takes_all_but_the_newest_events_and_the_next_one_finds_nothing_old(live, folder):
    due = events_of(live)
    turns = rotator(live, folder)
    done = turns.turn()
    assert [path.name for path in archives_in(folder)] == [
        f"run.run-0001.step-{done.last_step:012}.db"
    ]
    assert turns.turn() is None
    assert KEEP <= left_in(live) == done.events_left < KEEP + 40
    assert events_of(parts_of(live, folder)) == due
    assert audit.verify(parts_of(live, folder)).verdict == "clean"


@pytest.mark.parametrize("scene", SCENES)
def test_beside_an_engine_every_event_is_verified_once_and_the_archives_sort(
    tmp_path, folder, scene, monkeypatch
):
    path, verified = tmp_path / "run.db", []
    take = Pass.take
    monkeypatch.setattr(
        Pass, "take", lambda own, step: (verified.extend(step.columns[0]), take(own, step))[1]
    )
    with EventLog.open(path) as log, Engine(sim(), config_of(scene, durability="step"), log) as own:
        turns, step = rotator(path, folder, keep_events=40), own.step

        def rotating_step():
            outputs = step()
            if own.current_step % 7 == 0:
                turns.turn()
            return outputs

        own.step = rotating_step
        serve(own, wanted())
    monkeypatch.undo()
    assert len(archives_in(folder)) > 3
    assert verified == list(range(1, len(verified) + 1))
    report = audit.verify(parts_of(path, folder))
    assert report.verdict == "clean", report.findings


def test_what_is_much_is_taken_in_several_archives(live, folder, monkeypatch):
    monkeypatch.setattr(rotating, "MOST_EVENTS", 60)
    due, turns = events_of(live), rotator(live, folder)
    turns.turn()
    assert turns.is_more_due
    while turns.is_more_due:
        turns.turn()
    assert len(archives_in(folder)) >= (len(due) - KEEP) // 60 - 1
    assert events_of(parts_of(live, folder)) == due


def test_where_a_run_cannot_be_cut_it_is_cut_a_little_later(live, folder, monkeypatch):
    kept, calls = Pass.keep, itertools.count()
    monkeypatch.setattr(Pass, "keep", lambda own: kept(own) if next(calls) >= 5 else None)
    done = rotator(live, folder).turn()
    assert done.events_left < KEEP
    assert audit.verify(parts_of(live, folder)).verdict == "clean"


@pytest.mark.parametrize("keep_events", [100_000, 961])
def test_nothing_is_taken_where_nothing_is_old(live, folder, keep_events):
    before = live.read_bytes()
    assert rotator(live, folder, keep_events).turn() is None
    assert live.read_bytes() == before
    assert archives_in(folder) == []


def test_by_default_it_is_the_newest_run_and_each_run_has_archives_of_its_own(live, folder):
    due = {run: events_of(live, run) for run in (1, 2)}
    assert rotator(live, folder, run=None).turn().run_id == 2
    assert rotator(live, folder, run=1).turn().run_id == 1
    parts = parts_of(live, folder)
    assert {run: events_of(parts, run) for run in (1, 2)} == due
    assert audit.verify(parts).verdict == "clean"


# ---- what is wrong -------------------------------------------------------------------------------


def test_of_an_old_event_that_is_not_clean_nothing_is_taken_away(live, folder):
    spoil(live)
    before = live.read_bytes()
    with pytest.raises(NotVerifiedError, match="is not clean before step"):
        rotator(live, folder).turn()
    assert live.read_bytes() == before
    assert archives_in(folder) == []


def test_where_no_step_seems_to_end_what_is_not_clean_is_told_all_the_same(live, folder):
    changed(live, "DELETE FROM step_log WHERE run_id = 1 AND step > 20")
    with pytest.raises(NotVerifiedError):
        rotator(live, folder).turn()


def test_a_place_that_is_no_folder_is_told_before_anything_is_read(live, tmp_path):
    with pytest.raises(LogError, match="there is no such folder: make it first"):
        rotator(live, tmp_path / "nowhere")
    with pytest.raises(LogError, match="there is no such folder: make it first"):
        rotator(live, live)


def test_a_folder_that_vanishes_costs_nothing_and_the_next_turn_goes_on(live, folder):
    due, turns = events_of(live), rotator(live, folder)
    folder.rmdir()
    with pytest.raises(NotStoredError, match="cannot be read"):
        turns.turn()
    assert events_of(live) == due
    folder.mkdir()
    turns.turn()
    assert events_of(parts_of(live, folder)) == due


def test_a_folder_that_vanishes_while_an_archive_is_made_costs_nothing(live, folder, monkeypatch):
    due = events_of(live)
    meanwhile(monkeypatch, archiving, "_require_the_same", lambda: shutil.rmtree(folder))
    with pytest.raises(NotStoredError, match="cannot be written"):
        rotator(live, folder).turn()
    assert events_of(live) == due


@pytest.mark.parametrize("options", ["size=48k", "ro"])
def test_a_disk_that_is_full_or_read_only_costs_nothing(live, tmp_path, options):
    due = events_of(live)
    with mounted(tmp_path / "disk", options) as disk:
        turns = rotator(live, tmp_path)
        turns._into = disk  # it was fine when the rotation began
        with pytest.raises(NotStoredError, match=r"no space is left|cannot be written"):
            turns.turn()
        assert list(disk.iterdir()) == []
        assert events_of(live) == due


def test_a_log_without_room_for_its_checkpoint_keeps_its_events_and_the_archive_is_used_later(
    tmp_path, folder
):
    with mounted(tmp_path / "disk", "size=1m") as disk:
        path = disk / "run.db"
        with EventLog.open(path) as log:
            whole_run("preempting", log)
        due, turns = events_of(path), rotator(path, folder)
        with suppress(OSError), (disk / "else").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))
        with pytest.raises(NotStoredError, match="no space is left"):
            turns.turn()
        assert events_of(path) == due
        (disk / "else").unlink()
        turns.turn()
        assert events_of(parts_of(path, folder)) == due
        assert audit.verify(parts_of(path, folder)).verdict == "clean"
