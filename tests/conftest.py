"""For every test: whatever engine it closes, the fold of the log must be the engine's state."""

import os
from functools import wraps

import pytest
import structlog
from folding import differences

from rlt_fsm import Engine, oplog

# Workers whose torch threads wait for each other's take several times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton decides at its import whether kernels are compiled or interpreted on the CPU.
if os.environ.get("RLT_KERNELS_DEVICE", "cpu") == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

LONG_RUN = 50_000  # events; folding these takes about a quarter of a second


def pytest_addoption(parser):
    parser.addoption(
        "--fold-long-runs",
        action="store_true",
        help=f"compare fold and state of runs above {LONG_RUN:,} events too",
    )


@pytest.fixture(autouse=True)
def _no_test_decides_what_another_logs():
    yield
    structlog.reset_defaults()
    oplog._chosen.clear()


@pytest.fixture(scope="session", autouse=True)
def _every_closed_engine_is_the_fold_of_its_log(request):
    folds_all = request.config.getoption("--fold-long-runs")
    close = Engine.close

    @wraps(close)
    def close_and_compare(engine):
        was_sealed = engine.state.seq
        close(engine)
        has_sealed = engine.state.seq > was_sealed  # not closed before, not stopped by an error
        if has_sealed and (folds_all or engine.state.seq <= LONG_RUN):
            assert differences(engine) == {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "close", close_and_compare)
        yield
