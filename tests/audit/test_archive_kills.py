"""An archiving process that is killed at any moment has lost nothing, and can be started again."""

import os
import shutil
import signal
import time
from random import Random

import pytest
from recovery.scenes import SCENES, whole_run

import audit
from audit.archive import archive
from audit.cli import _engine_state
from audit.reader import open_log
from rlt_fsm import EventLog
from rlt_fsm.log import archiving

KILLS = 12


def _killed_while_archiving(live, into, before_step, after_s):
    """A fork that archives, and is killed after a time; whether it was still at it."""
    child = os.fork()
    if not child:
        archiving.DELETED_ROWS = 20  # so that there is something between two deletions
        archiving.COPIED_ROWS = 30
        archiving.PAUSE_S = 0.0005
        archive(live, into, before_step=before_step, engine_state=_engine_state)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _events_of(parts):
    with open_log(parts) as log:
        return list(log.run(1).events())


@pytest.mark.parametrize("scene", ["preempting", "late results"])
def test_whenever_archiving_is_killed_every_event_is_in_the_log_or_in_its_archive(tmp_path, scene):
    assert scene in SCENES
    whole, random, killed, archived = tmp_path / "whole.db", Random(scene), 0, 0
    with EventLog.open(whole) as log:
        whole_run(scene, log)
    due = _events_of(whole)
    started = time.perf_counter()
    shutil.copy(whole, tmp_path / "once.db")
    archive(tmp_path / "once.db", None, before_step=30, engine_state=_engine_state)
    longest_s = 2 * (time.perf_counter() - started)
    for turn in range(KILLS):
        live, into = tmp_path / f"{turn}.db", tmp_path / f"{turn}-archive.db"
        shutil.copy(whole, live)
        killed += _killed_while_archiving(live, into, 30, random.uniform(0, longest_s))
        EventLog.open(live).close()  # takes back what was half done
        parts = [into, live] if _begins_with_a_checkpoint(live) else [live]
        archived += len(parts) == 2
        assert _events_of(parts) == due
        assert audit.verify(parts).verdict == "clean"
        if len(parts) == 1:  # again; what was copied and not let go is copied anew
            into.unlink(missing_ok=True)
            archive(live, into, before_step=30, engine_state=_engine_state)
            assert _events_of([into, live]) == due
        again = tmp_path / f"{turn}-second.db"
        archive(live, again, before_step=40, engine_state=_engine_state)
        assert _events_of([into, again, live]) == due
    assert killed, "none of them was still at it"


def _begins_with_a_checkpoint(live):
    with EventLog.open_for_reading(live) as log:
        return log.reader().checkpoint(1) is not None
