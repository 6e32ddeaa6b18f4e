"""A log that is locked, or on a full disk: one clear sentence, and nothing committed is lost."""

import sqlite3
import subprocess
import sys

import pytest
from log_rows import HEADER, assert_one_sentence, committed_events, grow_events, make_log

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.event_log import EventLog


def test_a_log_that_another_process_locks_is_unavailable_and_works_again_after(log_path):
    make_log(log_path)
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"locked\n"
        for open_log in (EventLog.open, EventLog.open_for_reading):
            with pytest.raises(LogUnavailable, match="another process keeps the log locked") as e:
                open_log(log_path, busy_timeout_ms=20)
            assert_one_sentence(e, log_path)
        holder.communicate()
    make_log(log_path)
    assert committed_events(log_path) == 3


def test_a_commit_that_met_a_lock_loses_nothing_and_may_be_tried_again(file_log, log_path):
    writer = file_log.begin_run(HEADER)
    writer.write(grow_events(1, 100))
    writer.commit()
    holder = sqlite3.connect(log_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    writer.write(grow_events(101, 100))
    with pytest.raises(LogUnavailable, match="another process keeps the log locked") as error:
        writer.commit()
    assert_one_sentence(error, log_path)
    assert committed_events(log_path) == 100
    holder.rollback()
    holder.close()
    writer.write(grow_events(201, 1))
    writer.commit()
    assert list(file_log.reader().events(1)) == grow_events(1, 201)


def test_waiting_for_a_lock_is_enough_when_it_is_short(log_path):
    make_log(log_path)
    code = (
        "import sqlite3, sys, time\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "time.sleep(0.2)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"locked\n"
        make_log(log_path)


def _limit_pages(log, *, more):
    """Let the file grow by `more` pages only, which fails as a full disk does."""
    driver = log._writing.connection.driver_connection
    ((pages,),) = driver.execute("PRAGMA page_count").fetchall()
    driver.execute(f"PRAGMA max_page_count = {pages + more}")


def test_on_a_full_disk_every_committed_event_stays_readable(file_log, log_path):
    writer = file_log.begin_run(HEADER)
    _limit_pages(file_log, more=3)
    for first in range(1, 1001, 50):
        committed = first - 1
        writer.write(grow_events(first, 50))
        try:
            writer.commit()
        except LogUnavailable:
            break
    with pytest.raises(LogUnavailable, match="no space is left for the log") as error:
        writer.commit()
    assert_one_sentence(error, log_path)
    assert 0 < committed < 950
    assert list(file_log.reader().events(1)) == grow_events(1, committed)
    assert committed_events(log_path) == committed
    file_log.close()
    assert committed_events(log_path) == committed
    with EventLog.open_for_reading(log_path) as log:
        assert log.reader().runs()[0].outcome == "running"


def test_a_run_goes_on_when_there_is_space_again(file_log, log_path):
    writer = file_log.begin_run(HEADER)
    _limit_pages(file_log, more=0)
    writer.write(grow_events(1, 5000))
    with pytest.raises(LogUnavailable, match="no space is left"):
        writer.commit()
    assert committed_events(log_path) == 0
    _limit_pages(file_log, more=10_000)
    writer.end("drained", "2031-05-04T03:03:00Z")
    assert list(file_log.reader().events(1)) == grow_events(1, 5000)
    assert file_log.reader().runs()[0].outcome == "drained"
