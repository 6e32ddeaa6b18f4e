"""Commits that are stored while the writer goes on: what is durable when, and what fails."""

import resource
import threading
from contextlib import contextmanager

import pytest
import structlog
from log_rows import HEADER, REQUESTS, assert_one_sentence, committed_events, grow_events, step_row

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log import sql_transactions
from rlt_fsm.log.event_log import EventLog


@pytest.fixture
def beside(monkeypatch):
    """Every commit that may be left to a thread is."""
    monkeypatch.setattr(sql_transactions, "SLOW_IN_A_ROW", 0)


@pytest.fixture
def gate(monkeypatch):
    """Every commit that may be left to a thread is, and that stores nothing before this is set."""
    monkeypatch.setattr(sql_transactions, "SLOW_IN_A_ROW", 0)
    opened, store = threading.Event(), sql_transactions.Transactions._store

    def when_opened(self, transaction):
        assert opened.wait(10), "the test opens it"
        store(self, transaction)

    monkeypatch.setattr(sql_transactions.Transactions, "_store", when_opened)
    yield opened
    opened.set()


@contextmanager
def files_that_may_not_grow(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def commit_threads():
    return [t for t in threading.enumerate() if t.name.startswith("rlt-log-commit")]


@pytest.mark.usefixtures("beside")
def test_what_was_begun_is_durable_after_the_next_commit(log):
    writer = log.begin_run(HEADER)
    assert writer.durable_seq == 0
    writer.write(grow_events(1, 3), [REQUESTS[0]], [step_row(0, 1, 3)])
    assert writer.commit_soon()
    writer.commit()
    assert writer.durable_seq == 3
    reader = log.reader()
    assert list(reader.events(writer.run_id)) == grow_events(1, 3)
    assert reader.requests(writer.run_id) == [REQUESTS[0]]
    assert list(reader.steps(writer.run_id)) == [step_row(0, 1, 3)]


@pytest.mark.usefixtures("beside")
def test_where_nothing_was_written_nothing_is_begun(file_log):
    assert not file_log.begin_run(HEADER).commit_soon()


def test_a_run_that_is_continued_begins_with_what_is_durable(file_log):
    first = file_log.begin_run(HEADER)
    first.write(grow_events(1, 3))
    first.commit()
    assert file_log.continue_run(first.run_id).durable_seq == 3


def test_nothing_is_durable_before_it_is_stored_and_no_second_commit_overtakes(file_log, gate):
    writer, reader = file_log.begin_run(HEADER), file_log.reader()
    writer.write(grow_events(1, 3))
    assert writer.commit_soon()
    writer.write(grow_events(4, 2))
    assert not writer.commit_soon(), "one at a time"
    assert writer.durable_seq == 0
    assert list(reader.events(1)) == []
    gate.set()
    writer.commit()
    assert writer.durable_seq == 5
    assert list(reader.events(1)) == grow_events(1, 5)


def test_a_log_that_is_closed_stores_what_was_begun(log_path, gate):
    with EventLog.open(log_path) as log:
        writer = log.begin_run(HEADER)
        writer.write(grow_events(1, 3))
        writer.commit_soon()
        threading.Timer(0.05, gate.set).start()
    assert committed_events(log_path) == 3
    assert not commit_threads()


def test_a_run_that_ends_stores_what_was_begun_first(file_log, gate):
    writer = file_log.begin_run(HEADER)
    writer.write(grow_events(1, 3))
    writer.commit_soon()
    gate.set()
    writer.write(grow_events(4, 1))
    writer.end("drained", "2031-05-04T03:02:03Z")
    assert list(file_log.reader().events(1)) == grow_events(1, 4)
    assert file_log.reader().runs()[0].outcome == "drained"


@pytest.mark.parametrize("then", ["commit", "commit_soon", "end"])
def test_one_that_fails_beside_is_told_by_the_next_call_and_may_be_tried_again(
    file_log, log_path, gate, then
):
    writer = file_log.begin_run(HEADER)
    writer.write(grow_events(1, 300))
    with files_that_may_not_grow(log_path.with_name("run.db-wal").stat().st_size):
        writer.commit_soon()
        gate.set()
        writer.write(grow_events(301, 1))
        writer._under_way.stored.exception()  # waits until it is known
        assert writer.durable_seq == 0
        with pytest.raises(LogUnavailable) as error:
            getattr(writer, then)(*(("drained", "now") if then == "end" else ()))
        assert_one_sentence(error, log_path)
    assert committed_events(log_path) == 0
    writer.commit()
    assert list(file_log.reader().events(1)) == grow_events(1, 301)


def test_what_fails_of_one_run_does_not_fail_another(file_log, log_path, gate):
    failing, other = file_log.begin_run(HEADER), file_log.begin_run(HEADER)
    failing.write(grow_events(1, 300))
    other.write(grow_events(1, 2))
    with files_that_may_not_grow(log_path.with_name("run.db-wal").stat().st_size):
        failing.commit_soon()
        gate.set()
        failing._under_way.stored.exception()
    other.commit()
    assert list(file_log.reader().events(2)) == grow_events(1, 2)
    with pytest.raises(LogUnavailable):
        failing.commit()
    failing.commit()
    assert list(file_log.reader().events(1)) == grow_events(1, 300)


@pytest.mark.usefixtures("beside")
def test_a_transaction_that_cannot_be_filled_fails_the_call_that_fills_it(file_log):
    first = file_log.begin_run(HEADER)
    second = file_log.continue_run(first.run_id)
    first.write(grow_events(1, 3))
    first.commit()
    second.write(grow_events(1, 3))
    with pytest.raises(LogUnavailable, match="another process has gone on with it"):
        second.commit_soon()
    first.write(grow_events(4, 1))
    first.commit()
    assert list(file_log.reader().events(1)) == grow_events(1, 4)


def test_a_fast_disk_gets_no_thread(file_log, monkeypatch):
    monkeypatch.setattr(sql_transactions, "SLOW_COMMIT_S", 1e9)
    before = commit_threads()
    writer = file_log.begin_run(HEADER)
    for seq in range(1, 9):
        writer.write(grow_events(seq, 1))
        assert writer.commit_soon()
        assert writer.durable_seq == seq
    assert commit_threads() == before


def test_a_disk_that_is_slow_three_times_in_a_row_gets_one(file_log, monkeypatch):
    monkeypatch.setattr(sql_transactions, "SLOW_COMMIT_S", 0)
    before = len(commit_threads())
    writer = file_log.begin_run(HEADER)
    for seq in range(1, 4):
        writer.write(grow_events(seq, 1))
        writer.commit_soon()
        assert writer.durable_seq == seq
        assert len(commit_threads()) == before
    writer.write(grow_events(4, 1))
    writer.commit_soon()
    assert len(commit_threads()) == before + 1
    writer.commit()
    assert list(file_log.reader().events(1)) == grow_events(1, 4)


@pytest.mark.usefixtures("beside")
def test_one_that_fails_and_that_nobody_asks_for_again_is_warned_of_at_the_close(log_path):
    log = EventLog.open(log_path)
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 300))
    size = log_path.with_name("run.db-wal").stat().st_size
    with structlog.testing.capture_logs() as told, files_that_may_not_grow(size):
        writer.commit_soon()
        log.close()
    assert [line["event"] for line in told] == ["the last commit is not stored"]
    assert committed_events(log_path) == 0
