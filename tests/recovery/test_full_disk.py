"""A disk that is really full: a small file system of its own, where the system lets one be made."""

import pytest
from disks import mounted
from recovery.scenes import config_of, outputs_in, serve, sim, wanted, whole_run

import audit
from rlt_fsm import Engine, EventLog
from rlt_fsm.errors import LogUnavailable


@pytest.fixture
def small_disk(tmp_path):
    """A folder with 1 MiB."""
    with mounted(tmp_path / "disk", "size=1m") as folder:
        yield folder


def test_a_run_that_filled_the_disk_goes_on_when_there_is_room_again(small_disk):
    due = outputs_in(whole_run("plain"))
    path, other = small_disk / "run.db", small_disk / "something else"
    other.write_bytes(bytes(850_000))
    with EventLog.open(path) as log:
        engine = Engine(sim(), config_of("plain", durability="step"), log)
        with pytest.raises(LogUnavailable, match="no space is left for the log"):
            serve(engine, wanted())
    other.unlink()
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    with EventLog.open_for_reading(path) as log:
        assert outputs_in(log) == due
    assert audit.verify(path).verdict == "clean"
