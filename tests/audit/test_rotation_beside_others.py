"""Turns of a rotation beside engines, readers and others that archive, killed and recovered."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from recovery.scenes import SCENES, outputs_in, serve, sim, wanted, whole_run
from rotating import (
    RUN_SHIFT,
    archives_in,
    changed,
    events_of,
    interrupted_before_letting_go,
    meanwhile,
    parts_of,
    rotator,
    served,
)

import audit
from audit import beginning
from audit.archive import archive
from audit.cli import _engine_state
from audit.reader import open_log
from audit.rotator import NotStoredError
from rlt_fsm import Engine, replay
from rlt_fsm.errors import LogError
from rlt_fsm.log import archiving

# ---- others beside it ----------------------------------------------------------------------------


def test_an_archive_that_was_named_and_not_let_go_is_used_by_the_next_turn(
    live, folder, monkeypatch
):
    due, turns = events_of(live), rotator(live, folder)
    interrupted_before_letting_go(monkeypatch, turns)
    assert events_of(live) == due
    (there,) = archives_in(folder)
    before = there.read_bytes()
    done = rotator(live, folder, keep_events=10).turn()  # more is old by now
    assert done.archive == str(there)
    assert there.read_bytes() == before
    assert events_of([there, live]) == due
    turns.turn()
    assert audit.verify(parts_of(live, folder)).verdict == "clean"


OTHERS = {
    "an event": f"UPDATE event_log SET t_ns = t_ns + 1 WHERE key = {1 << RUN_SHIFT | 30}",
    "its end": "DELETE FROM event_log WHERE key = (SELECT max(key) FROM event_log)",
    "another run": "UPDATE run_log SET started_at = started_at || '0'",
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_archive_that_holds_something_else_is_left_alone_and_so_is_the_log(
    live, folder, monkeypatch, other
):
    due, turns = events_of(live), rotator(live, folder)
    interrupted_before_letting_go(monkeypatch, turns)
    (there,) = archives_in(folder)
    changed(there, OTHERS[other])
    with pytest.raises(NotStoredError, match=r"is not what was copied|not copied as they are"):
        turns.turn()
    assert events_of(live) == due
    assert archives_in(folder) == [there]


@pytest.mark.parametrize("step", [30, 999_999])
def test_an_archive_of_another_log_is_never_taken_for_ones_own(live, folder, step):
    due = events_of(live)
    there = folder / f"run.run-0001.step-{step:012}.db"
    shutil.copy(live, there)
    with pytest.raises(NotStoredError, match="move it away, or give another folder"):
        rotator(live, folder).turn()
    assert events_of(live) == due


@pytest.mark.parametrize("moment", ["_copy", "_require_the_same", "_begin_at"])
def test_of_an_archive_made_by_hand_meanwhile_nothing_is_lost(
    live, folder, tmp_path, monkeypatch, moment
):
    due, by_hand = events_of(live), tmp_path / "by-hand.db"
    act = lambda: archive(live, by_hand, before_step=15, engine_state=_engine_state, run=1)  # noqa: E731  # one line
    meanwhile(monkeypatch, archiving, moment, act)
    with pytest.raises(NotStoredError):
        rotator(live, folder).turn()
    assert events_of([by_hand, live]) == due
    assert audit.verify([by_hand, live]).verdict == "clean"
    if archives_in(folder):  # it had its name already, and nobody says which of the two is to stay
        with pytest.raises(NotStoredError, match="move it away, or give another folder"):
            rotator(live, folder).turn()
    else:
        assert rotator(live, folder).turn() is not None
        assert events_of([by_hand, *archives_in(folder), live]) == due


def test_a_reader_that_keeps_a_transaction_open_sees_what_it_saw_and_holds_nobody_up(
    tmp_path, folder
):
    path = tmp_path / "run.db"
    log, engine = served(path, "plain", 25)
    with log, closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        reader.execute("BEGIN")
        ((before,),) = reader.execute("SELECT count(*) FROM event_log").fetchall()
        assert rotator(path, folder, keep_events=20).turn() is not None
        serve(engine, wanted())
        engine.close()
        assert reader.execute("SELECT count(*) FROM event_log").fetchall() == [(before,)]
    assert audit.verify(parts_of(path, folder)).verdict == "clean"


@pytest.mark.parametrize("moment", ["_copy", "_require_the_same", "_begin_at"])
def test_a_run_that_ends_while_it_is_archived_ends_well(tmp_path, folder, monkeypatch, moment):
    path = tmp_path / "run.db"
    log, engine = served(path, "late results", 25)

    def end():
        serve(engine, wanted())
        engine.close()
        log.close()

    meanwhile(monkeypatch, archiving, moment, end)
    assert rotator(path, folder, keep_events=20).turn() is not None
    assert audit.verify(parts_of(path, folder)).verdict == "clean"


# ---- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_that_crashed_and_was_recovered_in_between_is_archived_on(tmp_path, folder, scene):
    due = outputs_in(whole_run(scene))
    path = tmp_path / "run.db"
    log, _ = served(path, scene, 17)
    turns = rotator(path, folder, keep_events=30)
    assert turns.turn() is not None
    log.close()  # without a word of the engine's
    assert turns.turn() is None
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    assert turns.turn() is not None
    assert rotator(path, folder, keep_events=5).turn() is not None
    parts = parts_of(path, folder)
    report = audit.verify(parts)
    assert report.verdict == "clean", report.findings
    with open_log(parts) as whole:
        assert outputs_in(whole.store) == due


@pytest.mark.parametrize("name", ["recorded", "_fold_from", "_state_at", "our_moves"])
def test_a_run_is_recovered_while_its_beginning_is_archived(tmp_path, folder, monkeypatch, name):
    due = outputs_in(whole_run("plain"))
    path = tmp_path / "run.db"
    log, _ = served(path, "plain", 17)
    assert rotator(path, folder, keep_events=60).turn() is not None
    log.close()
    turn = lambda: rotator(path, folder, keep_events=20).turn()  # noqa: E731  # one line
    meanwhile(monkeypatch, replay, name, turn)
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    assert len(archives_in(folder)) == 2
    parts = parts_of(path, folder)
    assert audit.verify(parts).verdict == "clean"
    with open_log(parts) as whole:
        assert outputs_in(whole.store) == due


def test_a_log_that_is_archived_while_it_is_opened_is_not_blamed(live, folder, monkeypatch):
    meanwhile(monkeypatch, beginning, "_events_after", lambda: rotator(live, folder).turn())
    assert audit.verify(live, 1).verdict == "clean"


def test_a_checkpoint_that_cannot_be_read_is_told_and_nothing_is_taken(live, folder):
    rotator(live, folder).turn()
    changed(live, "UPDATE checkpoint SET audit = '{}'")
    before = live.read_bytes()
    with pytest.raises(LogError, match="what the auditor left in its checkpoint cannot be read"):
        rotator(live, folder, keep_events=10).turn()
    assert live.read_bytes() == before
