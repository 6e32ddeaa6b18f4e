"""The `-wal` file beside a log: how large it gets beside readers, and what is said about it."""

import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import pytest
import structlog
from log_rows import HEADER, grow_events

from rlt_fsm.log import wal
from rlt_fsm.log.event_log import EventLog

MIB = 1 << 20
HOLD = 3 * MIB  # where a commit to `small_log` waits for a copy, to make the WAL begin anew
ONE_COMMIT = MIB // 4  # what a commit of these tests adds at most

# Opens a transaction, reads, says so, and keeps it until its input ends.
STAYING_READER = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
connection.execute("BEGIN")
print(connection.execute("SELECT count(*) FROM event").fetchone()[0], flush=True)
sys.stdin.read()
print(connection.execute("SELECT count(*) FROM event").fetchone()[0], flush=True)
"""

# Two connections that read in turn, so that one of them always does, until its input ends.
OVERLAPPING_READERS = """
import select, sqlite3, sys
def reader():
    return sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
def begin(connection):
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM move").fetchall()
old, new = reader(), reader()
begin(old)
print("reading", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    begin(new)
    old.execute("ROLLBACK")
    old, new = new, old
"""


@pytest.fixture
def small_log(monkeypatch, log_path):
    """A log with the same policy, but bounds of a few MiB, so that a test takes a second."""
    monkeypatch.setattr(wal, "KEPT_BYTES", MIB // 4)
    monkeypatch.setattr(wal, "COPY_BYTES", MIB)
    monkeypatch.setattr(wal, "RESET_BYTES", 2 * MIB)
    monkeypatch.setattr(wal, "HOLD_BYTES", 3 * MIB)
    monkeypatch.setattr(wal, "WARN_BYTES", 4 * MIB)
    pragmas = (
        "PRAGMA journal_mode = WAL",
        "PRAGMA wal_autocheckpoint = 0",
        f"PRAGMA journal_size_limit = {MIB // 4}",
        "PRAGMA synchronous = NORMAL",
    )
    monkeypatch.setattr("rlt_fsm.log.sql_store._WRITER_PRAGMAS", pragmas)
    with EventLog.open(log_path, busy_timeout_ms=50) as opened:
        yield opened


@contextmanager
def staying_reader(path):
    with subprocess.Popen(
        [sys.executable, "-c", STAYING_READER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        seen = int(reader.stdout.readline())
        yield seen
        told, _ = reader.communicate()
        assert int(told) == seen, "a transaction sees one moment of the log"


class _Growing:
    """Writes commits of 500 events to one run and measures the WAL after each."""

    def __init__(self, log, path):
        self._writer = log.begin_run(HEADER)
        self._wal = path.with_name(f"{path.name}-wal")
        self.events = 0

    def commit(self, times):
        """The largest WAL that there was, in bytes."""
        largest = 0
        for _ in range(times):
            self._writer.write(grow_events(self.events + 1, 500))
            self._writer.commit()
            self.events += 500
            largest = max(largest, self.wal_bytes)
        return largest

    @property
    def wal_bytes(self):
        return self._wal.stat().st_size


def test_alone_the_wal_begins_anew_again_and_again(small_log, log_path):
    growing = _Growing(small_log, log_path)
    assert growing.commit(200) <= HOLD + ONE_COMMIT


def test_where_commits_leave_a_moment_it_begins_anew_before_anyone_has_to_make_it(
    small_log, log_path, monkeypatch
):
    def resets(_keeper):
        raise AssertionError("it was made to begin anew")

    monkeypatch.setattr(wal.WalKeeper, "_reset", resets)
    growing = _Growing(small_log, log_path)
    largest = 0
    for _ in range(200):
        largest = max(largest, growing.commit(1))
        copying = small_log._wal._copying
        if copying is not None:
            copying.result()
    assert largest <= HOLD


def test_a_reader_that_stays_makes_the_wal_grow_and_nobody_wait_and_a_warning_says_so(
    small_log, log_path
):
    growing = _Growing(small_log, log_path)
    growing.commit(10)
    with structlog.testing.capture_logs() as lines, staying_reader(log_path) as seen:
        assert seen == 5000
        growing.commit(300)
        assert growing.wal_bytes > 4 * MIB
    warned = [line for line in lines if "the WAL grows" in line["event"]]
    assert 1 <= len(warned) <= 3, "at each doubling, not at each commit"
    assert warned[0]["wal_mib"] >= 4
    assert warned[0]["log"] == str(log_path)
    with EventLog.open_for_reading(log_path) as log:
        assert sum(1 for _ in log.reader().events(1)) == growing.events


def test_the_wal_is_small_again_soon_after_the_reader_went(small_log, log_path):
    growing = _Growing(small_log, log_path)
    growing.commit(10)
    with structlog.testing.capture_logs() as lines:
        with staying_reader(log_path):
            growing.commit(300)
        growing.commit(60)
    assert growing.wal_bytes <= HOLD + ONE_COMMIT
    assert any("small again" in line["event"] for line in lines)


def test_readers_that_overlap_without_end_do_not_make_it_grow(small_log, log_path):
    growing = _Growing(small_log, log_path)
    growing.commit(10)
    with subprocess.Popen(
        [sys.executable, "-c", OVERLAPPING_READERS, str(log_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as readers:
        assert readers.stdout.readline() == b"reading\n"
        largest = growing.commit(300)
        readers.communicate()
    assert largest < 4 * MIB


def test_a_reader_of_ours_never_stays_in_a_transaction(small_log, log_path):
    growing = _Growing(small_log, log_path)
    growing.commit(10)
    with EventLog.open_for_reading(log_path) as log:
        events, steps = log.reader().events(1), log.reader().columns(1)
        next(events)
        next(steps)
        assert growing.commit(200) <= HOLD + ONE_COMMIT
        assert sum(1 for _ in events) == 4999, "up to what was committed when it began to read"


def test_it_is_looked_after_wherever_the_process_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with EventLog.open("run.db") as log:
        growing = _Growing(log, tmp_path / "run.db")
        growing.commit(1)
        monkeypatch.chdir("/")
        growing.commit(1)
        assert log._wal._size() == growing.wal_bytes > 0


class _NoSpaceToCopyTo:
    """A connection whose checkpoints fail, as on a full disk; all else is the real one's."""

    def __init__(self, driver):
        self._driver = driver

    def execute(self, statement):
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("database or disk is full")
        return self._driver.execute(statement)


def test_a_commit_that_is_stored_is_none_that_failed_where_the_wal_cannot_begin_anew(
    small_log, log_path, monkeypatch
):
    growing = _Growing(small_log, log_path)
    growing.commit(10)
    keeper = small_log._wal
    monkeypatch.setattr(keeper, "_driver", _NoSpaceToCopyTo(keeper._driver))
    with structlog.testing.capture_logs() as lines, staying_reader(log_path):
        growing.commit(300)
    warned = [line["event"] for line in lines if "the WAL grows" in line["event"]]
    assert "cannot be copied into the log (database or disk is full)" in warned[0]
    with EventLog.open_for_reading(log_path) as log:
        assert sum(1 for _ in log.reader().events(1)) == growing.events
