import pytest

from rlt_fsm.log.event_log import EventLog


@pytest.fixture
def log_path(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture(params=["memory", "sqlite"])
def log(request, log_path):
    """A fresh log of each kind: what must hold for one must hold for the other."""
    with EventLog.memory() if request.param == "memory" else EventLog.open(log_path) as opened:
        yield opened


@pytest.fixture
def file_log(log_path):
    with EventLog.open(log_path, busy_timeout_ms=50) as opened:
        yield opened
