"""Metrics over runs that crash, end unseen, are archived, or stand where another stood."""

import gc
import weakref

import pytest

from audit.archive import archive
from audit.cli import _engine_state
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.metrics import Metrics
from runner.sim import SimRunner


def begun(log, *names, max_tokens=4):
    engine = Engine(SimRunner(), from_mapping({"execution": {"durability": "step"}}), log)
    for name in names:
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=max_tokens))
    engine.step()
    return engine


def finish(engine):
    while engine.has_unfinished_requests():
        engine.step()
    engine.close()


def test_the_end_of_a_run_is_read_though_a_newer_run_has_begun(tmp_path):
    metrics = Metrics()
    with EventLog.open(tmp_path / "run.db") as log:
        first = begun(log, "a", "b")
        metrics.read(log)
        assert metrics.snapshot().requests_live == 2
        finish(first)
        finish(begun(log, "c"))
        metrics.read(log)
    assert metrics.snapshot().requests_finished == {"length": 3}
    assert metrics.snapshot().requests_live == metrics.snapshot().tickets_in_flight == 0


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_run_that_crashed_leaves_the_gauges_when_a_newer_one_begins(tmp_path, is_counted):
    metrics = Metrics()
    with EventLog.open(tmp_path / "run.db") as plain:
        log = metrics.counting(plain) if is_counted else plain
        first = begun(log, "a", "b")
        if not is_counted:
            metrics.read(log)
        second = begun(log, "c")
        if not is_counted:
            metrics.read(log)
        assert metrics.snapshot().requests_live == 1
        assert metrics.snapshot().slots_held == 1
        first.step()  # it was none, after all
        if not is_counted:
            metrics.read(log)
        assert metrics.snapshot().requests_live == 3
        first.close()
        second.close()


def test_what_was_archived_between_two_reads_is_told_once_and_gauges_stay_right(tmp_path, capsys):
    path, read, written = tmp_path / "run.db", Metrics(), Metrics()
    with written.counting(EventLog.open(path)) as log, EventLog.open_for_reading(path) as watched:
        engine = begun(log, "a", "b")
        read.read(watched)
        for number, name in enumerate(("c", "d")):
            while engine.has_unfinished_requests():
                engine.step()
            engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=40))
            for _ in range(12):
                engine.step()
            part, step = tmp_path / f"run.{number}.db", engine.current_step - 4
            archive(path, part, before_step=step, engine_state=_engine_state)
            read.read(watched)
            assert_same_gauges(read.snapshot(), written.snapshot())
        late = Metrics()
        late.read(watched)
        assert_same_gauges(late.snapshot(), written.snapshot())
        finish(engine)
        read.read(watched)
    assert_same_gauges(read.snapshot(), written.snapshot())
    assert read.snapshot().events < written.snapshot().events
    lines = capsys.readouterr().err.splitlines()
    assert sum("archived before they were read" in line for line in lines) == 1


def assert_same_gauges(one, other):
    for name in (
        "requests_live", "tickets_in_flight", "waiting", "slots_held", "blocks_free",
        "blocks_prefix_only", "host_blocks",
    ):  # fmt: skip
        assert getattr(one, name) == getattr(other, name), name


def test_a_log_in_the_place_of_another_is_counted_too(tmp_path):
    metrics, path = Metrics(), tmp_path / "run.db"
    with EventLog.open(path) as log:
        engine = begun(log, "a", "b")
        metrics.read(log)
        del engine
    for file in tmp_path.iterdir():
        file.unlink()
    with EventLog.open(path) as log:
        engine = begun(log, "c")
        metrics.read(log)
        assert metrics.snapshot().requests_submitted == 3
        assert metrics.snapshot().requests_live == 1
        engine.close()


def test_a_log_in_memory_is_not_kept_alive_by_its_metrics():
    metrics = Metrics()
    log = EventLog.memory()
    finish(begun(metrics.counting(log), "a"))
    gone = weakref.ref(log)
    del log
    gc.collect()
    assert gone() is None
    assert metrics.snapshot().requests_submitted == 1


def test_a_run_that_came_and_went_between_two_reads_is_counted(tmp_path):
    metrics = Metrics()
    with EventLog.open(tmp_path / "run.db") as log:
        finish(begun(log, "before the first look"))
        finish(begun(log, "a"))
        metrics.read(log)
        finish(begun(log, "b", "c"))
        finish(begun(log, "d"))
        metrics.read(log)
    assert metrics.snapshot().requests_finished == {"length": 4}


def test_of_a_checkpoint_that_cannot_be_understood_only_what_follows_is_counted(tmp_path):
    path, metrics = tmp_path / "run.db", Metrics()
    with EventLog.open(path) as log:
        engine = begun(log, "a", max_tokens=40)
        for _ in range(12):
            engine.step()
        archive(path, None, before_step=6, engine_state=lambda *_: "{}")
        metrics.read(log)
        assert metrics.snapshot().requests_live == 0
        assert metrics.snapshot().slots_held == 1
        while engine.has_unfinished_requests():
            engine.step()
        metrics.read(log)
    assert metrics.snapshot().requests_finished == {"length": 1}
