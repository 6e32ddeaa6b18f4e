"""What the `run` view says of a run that was recovered, once its `recover` is archived."""

import sqlite3
from contextlib import closing

import pytest
from recovery.scenes import config_of, serve, sim, wanted

import audit
from audit.archive import archive
from audit.cli import _engine_state
from rlt_fsm import Engine, EventLog
from rlt_fsm.log.views import VIEWS


def take(path, into, before_step, run=None):
    return archive(path, into, before_step=before_step, engine_state=_engine_state, run=run)


@pytest.fixture
def recovered(tmp_path):
    """The file of a run that was recovered at step 12 and is still going on."""
    path = tmp_path / "run.db"
    config = config_of("plain", durability="step")
    with EventLog.open(path) as log:
        engine = Engine(sim(), config, log)
        with pytest.raises(AssertionError, match="not done"):
            serve(engine, wanted(), most_steps=12)
        again = Engine.recover(log, sim())
        with pytest.raises(AssertionError, match="not done"):
            serve(again, wanted(), most_steps=12)
    return path


def outcome(path):
    with EventLog.open_for_reading(path) as log:
        return log.reader().runs()[0].outcome


def test_a_recovered_run_is_crashed_also_once_its_recovery_is_archived(recovered):
    parts = [recovered.with_name(f"part{number}.db") for number in range(4)]
    for part, before_step in zip(parts, (10, 15, 18, 21), strict=True):
        take(recovered, part, before_step)
        assert outcome(recovered) == "crashed"
    assert [outcome(part) for part in parts] == ["running", "crashed", "crashed", "crashed"]
    take(recovered, None, 22)
    assert outcome(recovered) == "crashed"
    with Engine.recover(recovered, sim()) as engine:
        serve(engine, wanted())
    assert outcome(recovered) == "drained"
    assert audit.verify(recovered).verdict == "clean"


def test_another_run_of_the_file_is_not_taken_for_recovered(recovered):
    with EventLog.open(recovered) as log:
        engine = Engine(sim(), config_of("plain", durability="step"), log)
        with pytest.raises(AssertionError, match="not done"):
            serve(engine, wanted(), most_steps=9)
    take(recovered, None, 15, run=1)
    take(recovered, None, 5, run=2)
    with EventLog.open_for_reading(recovered) as log:
        assert [run.outcome for run in log.reader().runs()] == ["crashed", "running"]


def test_a_log_that_an_earlier_version_has_cut_is_cut_again(recovered):
    take(recovered, recovered.with_name("first.db"), 10)
    with closing(sqlite3.connect(recovered)) as connection:
        connection.executescript(
            f"DROP VIEW run; DROP TABLE recovered_run; CREATE VIEW run AS {VIEWS['run']}"
        )
    take(recovered, recovered.with_name("second.db"), 15)
    assert outcome(recovered) == outcome(recovered.with_name("second.db")) == "crashed"
