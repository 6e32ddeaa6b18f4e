"""A rotation goes on until the run is over, whatever comes in between, also where it is killed."""

import os
import shutil
import signal
import time
from random import Random
from threading import Event, Thread

import pytest
from recovery.scenes import config_of, outputs_in, serve, sim, wanted, whole_run
from rotating import (
    events_of,
    parts_of,
    rotated,
    rotator,
    serving,
    spoil,
    whole_log,
)

import audit
from audit.archive import NotVerifiedError
from audit.reader import open_log
from audit.rotation import rotate
from rlt_fsm import Engine, EventLog
from rlt_fsm.errors import LogError
from rlt_fsm.log import archiving
from rlt_fsm.log.sole_archiver import sole_archiver


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


# ---- how it ends ---------------------------------------------------------------------------------


def test_beside_a_process_that_writes_it_ends_with_the_run(path, folder):
    archived = []
    with serving(path) as server:

        def told(done):
            archived.append(done)
            if len(archived) == 5:
                server.communicate("\n")

        result = rotated(path, folder, told=told)
    assert (result.ended, result.run_id) == ("over", 1)
    assert result.archives == len(archived) == len(list(folder.iterdir())) >= 5
    report = audit.verify(parts_of(path, folder))
    assert report.verdict == "clean", report.findings
    assert report.events == result.events + audit.verify(path).events
    assert not [name for name in os.listdir(path.parent) if "archiving" in name]  # noqa: PTH208  # names


def test_a_run_that_nobody_writes_any_more_is_given_up_after_patience_with_what_is_old_taken(
    path, folder
):
    with serving(path) as server:

        def told(_):
            server.kill()
            server.wait()

        result = rotated(path, folder, told=told, patience_s=0.3)
    assert result.ended == "abandoned"
    report = audit.verify(parts_of(path, folder))
    assert (report.verdict, report.findings) == ("inconclusive", [])


def test_it_goes_on_with_a_run_that_was_recovered_within_its_patience(path, folder):
    due = outputs_in(whole_run("plain"))
    log = EventLog.open(path)
    engine = Engine(sim(), config_of("plain", durability="step"), log)
    with pytest.raises(AssertionError, match="not done"):
        serve(engine, wanted(), most_steps=17)
    log.close()

    def told(_):
        if len(list(folder.iterdir())) == 1:
            with Engine.recover(path, sim()) as engine:
                serve(engine, wanted())

    result = rotated(path, folder, told=told, keep_events=30)
    assert (result.ended, result.archives) == ("over", 2)
    with open_log(parts_of(path, folder)) as whole:
        assert outputs_in(whole.store) == due
    assert audit.verify(parts_of(path, folder)).verdict == "clean"


def test_it_goes_on_with_a_newer_run_of_the_same_file(path, folder):
    log = EventLog.open(path)
    engine = Engine(sim(), config_of("plain", durability="step"), log)
    with pytest.raises(AssertionError, match="not done"):
        serve(engine, wanted(), most_steps=17)  # it never ends
    runs = []

    def told(done):
        runs.append(done.run_id)
        if len(runs) == 1:
            whole_run("late results", log)
            log.close()

    result = rotated(path, folder, told=told, keep_events=30)
    assert (result.ended, result.run_id, runs) == ("over", 2, [1, 2])


def test_asked_to_end_while_it_verifies_it_ends_and_takes_nothing(path, folder, monkeypatch):
    whole_log(path)
    stop, go_on = Event(), audit.run_pass.Pass.take

    def take(own, step):
        stop.set()
        own._steps = 255  # the next one tells how far it is
        go_on(own, step)

    monkeypatch.setattr(audit.run_pass.Pass, "take", take)
    result = rotated(path, folder, stop=stop)
    assert (result.ended, result.archives) == ("stopped", 0)
    assert list(folder.iterdir()) == []


def test_no_file_or_no_run_is_waited_for_and_then_told(path, folder):
    with pytest.raises(LogError, match="there is no such file"):
        rotated(path, folder, patience_s=0.1)
    EventLog.open(path).close()
    with pytest.raises(LogError, match="the log has no runs"):
        rotated(path, folder, patience_s=0.1)


# ---- trouble -------------------------------------------------------------------------------------


def test_trouble_with_storing_is_told_once_and_over_when_it_is_over(path, folder):
    troubles, archived = [], []
    aside = folder.with_name("aside")

    def told(done):
        archived.append(done)
        if len(archived) == 1:
            folder.rename(aside)  # an unmounted disk
        if len(archived) == 3:
            server.communicate("\n")

    def troubled(trouble):
        troubles.append(str(trouble))
        time.sleep(0.1)
        back.set()

    back = Event()
    with serving(path) as server:
        hand = Thread(target=lambda: (back.wait(), time.sleep(0.2), aside.rename(folder)))
        hand.start()
        result = rotated(path, folder, told=told, troubled=troubled)
        hand.join()
    assert result.ended == "over"
    assert troubles == [f"{folder}: cannot be read (No such file or directory)"]
    assert audit.verify(parts_of(path, folder)).verdict == "clean"


def test_trouble_at_the_first_turn_or_at_the_end_of_the_run_ends_it(path, folder):
    whole_log(path)
    turns, due = rotator(path, folder), events_of(path)
    folder.rmdir()
    with pytest.raises(LogError, match="cannot be read"):
        rotate(turns, every_s=1, stop=Event(), told=print, troubled=print)
    assert events_of(path) == due


def test_an_event_that_is_not_clean_ends_it(path, folder):
    whole_log(path)
    spoil(path)
    with pytest.raises(NotVerifiedError):
        rotated(path, folder)
    assert list(folder.iterdir()) == []


def test_of_two_on_one_log_the_second_is_refused_and_a_killed_one_is_no_hindrance(path, folder):
    whole_log(path)
    path.with_name("run.db-archiving").touch()  # of one that was killed
    with (
        sole_archiver(path),
        pytest.raises(LogError, match="another process archives it and goes on doing so"),
    ):
        rotated(path, folder)
    assert rotated(path, folder).ended == "over"


# ---- kills ---------------------------------------------------------------------------------------


def _killed(live, folder, after_s):
    """A fork that rotates, and is killed after a time; whether it was still at it."""
    child = os.fork()
    if not child:
        archiving.DELETED_ROWS, archiving.COPIED_ROWS, archiving.PAUSE_S = 20, 30, 0.0005
        rotated(live, folder, keep_events=30)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("scene", ["preempting", "late results"])
def test_whenever_it_is_killed_it_is_begun_again_and_goes_on_with_nothing_lost(tmp_path, scene):
    whole, random, killed = tmp_path / "whole.db", Random(scene), 0
    whole_log(whole, scene)
    due = events_of(whole)
    started = time.perf_counter()
    for turn in range(8):
        live, into = tmp_path / f"{turn}.db", tmp_path / f"{turn}"
        into.mkdir()
        shutil.copy(whole, live)
        if turn == 0:
            started = time.perf_counter()
            assert rotated(live, into, keep_events=30).ended == "over"
            longest_s = 2 * (time.perf_counter() - started)
            continue
        for _ in range(3):
            killed += _killed(live, into, random.uniform(0, longest_s))
        assert rotated(live, into, keep_events=30).ended == "over"
        assert events_of(parts_of(live, into)) == due
        assert audit.verify(parts_of(live, into)).verdict == "clean"
    assert killed, "none of them was still at it"
