"""`Engine.recover`: which run it takes, how it goes on there, and what it refuses."""

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from recovery.cuts import first_events
from recovery.scenes import config_of, outputs_in, serve, sim, wanted, whole_run
from told import triggers

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams, SchedulerConfig
from rlt_fsm.errors import ConfigError, LogError, LogUnavailable, NotALog
from runner.sim import SimRunner


@pytest.fixture
def broken_off(tmp_path):
    """A file with a run that broke off after 150 events: every submit is in it."""
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        first_events(whole_run("plain"), 150, into=log)
    return path


def started(config=None, **options):
    """An engine in the middle of its work, on a log in memory."""
    engine = Engine(sim(), config or config_of("plain", **options))
    for _, name, prompt, params in wanted():
        engine.add_request(name, prompt, params)
    for _ in range(9):
        engine.step()
    return engine


# ---- the same run goes on ----------------------------------------------------------------------


def test_the_run_goes_on_with_its_number_its_seqs_steps_refs_and_tickets(broken_off):
    with Engine.recover(broken_off, sim()) as engine:
        assert engine.run_id == 1
        assert engine.state.next_ref == 4
        first = engine.last_events[0]
        serve(engine, wanted())
    with EventLog.open_for_reading(broken_off) as log:
        (run,) = log.reader().runs()
        events = list(log.reader().events(1))
    assert first[0] == 151
    assert [event[0] for event in events] == list(range(1, run.last_seq + 1))
    assert first[1] == events[149][1] + 1  # a step of its own
    assert [event[1] for event in events] == sorted(event[1] for event in events)
    assert [event[3] for event in events] == sorted(event[3] for event in events)  # t_ns
    submitted = [event[2] for event in events if event[2] is not None]
    assert submitted == sorted(submitted)


def test_a_recovery_is_one_commit_that_begins_with_recover_and_runs_nothing():
    log = started().log
    before = log.reader().runs()[0].last_seq
    engine = Engine.recover(log, sim())
    new = triggers(log)[before:]
    assert new[0] == "recover"
    assert set(new) <= {"recover", "rewind", "fail_batch", "retire_batch", "retire"}
    assert engine.last_schedule is None
    assert {request.status for request in engine.state.by_ref.values()} == {"WAITING"}
    assert {request.kv for request in engine.state.by_ref.values()} == {"NONE"}
    assert not engine.state.tickets
    assert engine.state.pool.free == engine.config.cache.num_blocks
    engine.close()


def test_the_run_is_crashed_until_it_is_closed_and_then_what_close_tells(broken_off):
    assert audit.verify(broken_off).verdict == "inconclusive"
    with Engine.recover(broken_off, sim()) as engine:
        with EventLog.open_for_reading(broken_off) as log:
            assert log.reader().runs()[0].outcome == "crashed"
        serve(engine, wanted())
    with EventLog.open_for_reading(broken_off) as log:
        assert log.reader().runs()[0].outcome == "drained"
    assert audit.verify(broken_off).ok


def test_closing_right_after_a_recovery_aborts_everybody_and_leaves_a_clean_log(broken_off):
    Engine.recover(broken_off, sim()).close()
    with EventLog.open_for_reading(broken_off) as log:
        assert log.reader().runs()[0].outcome == "closed"
    assert audit.verify(broken_off).ok


def test_requests_may_be_added_and_aborted_after_a_recovery(broken_off):
    with Engine.recover(broken_off, sim()) as engine:
        engine.add_request("new", [7, 8], SamplingParams(max_tokens=2))
        assert engine.abort_request("c")
        serve(engine, wanted())
    with EventLog.open_for_reading(broken_off) as log:
        assert len(outputs_in(log)["new"]) == 2
    assert audit.verify(broken_off).ok


@pytest.mark.parametrize("durability", ["step", "group"])
def test_an_engine_that_is_left_without_a_word_is_recovered_from_its_own_log(durability):
    expected = outputs_in(whole_run("plain"))
    log = started(durability=durability).log
    with Engine.recover(log, sim()) as engine:
        serve(engine, wanted())
    assert outputs_in(log) == expected
    assert audit.verify(log).ok
    assert log.reader().runs()[0].outcome == "drained"


def test_a_long_replay_in_small_rows_is_progress_for_the_auditor():
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_batched_tokens=1, prefill_chunk_size=1),
        cache=CacheConfig(num_blocks=400, block_size=4),
    )
    engine = Engine(sim(), config)
    engine.add_request("long", [1, 2, 3], SamplingParams(max_tokens=150, max_loops=2))
    while len(engine.state.by_id["long"].outputs) < 140:
        engine.step()
    engine.add_request("last", [4], SamplingParams(max_tokens=1))  # commits
    with Engine.recover(engine.log, sim()) as again:
        serve(again, [])
    report = audit.verify(engine.log)
    assert report.ok, report.findings


# ---- which run ---------------------------------------------------------------------------------


def test_the_newest_run_that_has_not_ended_is_taken_unless_one_is_named(tmp_path):
    path = tmp_path / "three.db"
    whole = whole_run("plain")
    with EventLog.open(path) as log:
        first_events(whole, 100, into=log)
        first_events(whole, 120, into=log)
        whole_run("plain", log)
    with Engine.recover(path, sim()) as engine:
        assert engine.run_id == 2
    with Engine.recover(path, sim(), run=1) as engine:
        assert engine.run_id == 1
    with pytest.raises(LogError, match="no run of it broke off: there is nothing to recover"):
        Engine.recover(path, sim())
    with pytest.raises(LogError, match=r"run 3 has ended \(drained\): nothing to recover"):
        Engine.recover(path, sim(), run=3)
    with pytest.raises(LogError, match="there is no run 7; runs: 1, 2, 3"):
        Engine.recover(path, sim(), run=7)


def test_a_run_that_broke_off_before_its_first_event_is_begun(tmp_path):
    path = tmp_path / "begun.db"
    with EventLog.open(path) as log:
        first_events(whole_run("plain"), 0, into=log)
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    with EventLog.open_for_reading(path) as log:
        assert triggers(log)[0] == "open"
        assert outputs_in(log) == outputs_in(whole_run("plain"))
    assert audit.verify(path).ok


# ---- what is refused ---------------------------------------------------------------------------


def test_a_log_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(LogUnavailable, match="there is no log, or an empty one"):
        Engine.recover(tmp_path / "none.db", sim())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a log, and long enough to look like a file of something else" * 9)
    with pytest.raises(NotALog):
        Engine.recover(path, sim())
    assert path.read_text().startswith("not a log")


@pytest.mark.parametrize(
    ("runner", "sentence"),
    [
        (SimRunner(depths=2), r"model\.depths=2 of this runner, 4 of run 1"),
        (SimRunner(vocab_size=100), r"model\.vocab_size=100 of this runner, 512 of run 1"),
    ],
)
def test_another_model_is_refused_and_nothing_is_recorded(broken_off, runner, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Engine.recover(broken_off, runner)
    with EventLog.open_for_reading(broken_off) as log:
        assert log.reader().runs()[0].last_seq == 150


def test_a_process_that_still_lives_cannot_write_on_once_its_run_was_recovered(tmp_path):
    path = Path(tmp_path / "fenced.db")
    with EventLog.open(path) as log:
        alive = Engine(sim(), config_of("plain", durability="step"), log)
        for _, name, prompt, params in wanted():
            alive.add_request(name, prompt, params)
        alive.step()
        with Engine.recover(path, sim()) as engine:
            with pytest.raises(LogUnavailable, match="another process has gone on with it"):
                alive.step()
            serve(engine, wanted())
    assert audit.verify(path).ok


# ---- when the disk, not the process, gives up ---------------------------------------------------


def _serve_until_the_log_fails(path, fail):
    """Serve on a log that fails once the first steps are committed; what was committed before."""
    with EventLog.open(path, busy_timeout_ms=20) as log:
        engine = Engine(sim(), config_of("plain", durability="step"), log)
        for _, name, prompt, params in wanted():
            engine.add_request(name, prompt, params)
        for _ in range(9):
            engine.step()
        committed = list(log.reader().events(1))
        with fail(log), pytest.raises(LogUnavailable):
            serve(engine, [])
        return committed


@contextmanager
def _no_space_left(log):
    """SQLite answers as on a full disk: the file may not grow."""
    driver = log._writing.connection.driver_connection
    driver.execute("PRAGMA max_page_count = 1")  # fewer than it has: no more
    yield


@contextmanager
def _locked_by_another(log):
    with closing(sqlite3.connect(log.name, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("fail", [_no_space_left, _locked_by_another])
def test_a_run_whose_log_could_not_be_written_goes_on_when_it_can_be_again(tmp_path, fail):
    path = tmp_path / "full.db"
    committed = _serve_until_the_log_fails(path, fail)
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    with EventLog.open_for_reading(path) as log:
        assert list(log.reader().events(1))[: len(committed)] == committed
        assert outputs_in(log) == outputs_in(whole_run("plain"))
    assert audit.verify(path).ok


class _Watched(SimRunner):
    """Counts what was submitted and not collected, until it is closed."""

    in_flight = 0

    def submit(self, batch):
        super().submit(batch)
        self.in_flight += 1

    def collect(self):
        results = super().collect()
        self.in_flight -= len(results)
        return results


def test_a_log_that_fails_while_the_device_computes_stops_the_engine_and_keeps_what_it_has(
    tmp_path,
):
    path, rows = tmp_path / "full.db", 60
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=rows, max_num_batched_tokens=8 * rows),
        cache=CacheConfig(num_blocks=8 * rows),
    )
    runner = _Watched()
    with EventLog.open(path) as log:
        engine = Engine(runner, config, log)
        for number in range(rows):
            engine.add_request(str(number), [1, 2, 3], SamplingParams(max_tokens=20))
        acknowledged = engine.state.seq
        with _no_space_left(log), pytest.raises(LogUnavailable, match="no space is left"):
            serve(engine, [])
        assert runner.in_flight == 1
    with EventLog.open_for_reading(path) as log:
        assert [event[0] for event in log.reader().events(1)] == list(range(1, acknowledged + 1))
    with Engine.recover(path, SimRunner()) as engine:
        serve(engine, [])
    assert audit.verify(path).ok
