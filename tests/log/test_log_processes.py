"""A log shared between processes: killed writers, readers while it is written, several writers."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from log_rows import HEADER, MOVE_TEXTS, committed_events, grow_events, step_row

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.digest import FIRST_DIGEST, move_texts, request_names, step_digest
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.sql_store import is_log

WRITER = """
import sys
from log_rows import HEADER, MOVE_TEXTS, REQUESTS, grow_events, step_row
from rlt_fsm.log.digest import FIRST_DIGEST, request_names, step_digest
from rlt_fsm.log.event_log import EventLog

path, steps = sys.argv[1], int(sys.argv[2])
log = EventLog.open(path)
writer = log.begin_run(HEADER)
writer.write([], REQUESTS)
digest, names = FIRST_DIGEST, request_names(REQUESTS)
for step in range(steps):
    first = step * 50 + 1
    events = grow_events(first, 50, step=step)
    digest = step_digest(digest, step, events, names, MOVE_TEXTS)
    writer.write(events, steps=[step_row(step, first, first + 49, digest)])
    writer.commit()
    print(first + 49, flush=True)
writer.end("drained", "2031-05-04T03:03:00Z")
log.close()
"""

FOLLOWER = """
import sys
from rlt_fsm.log.event_log import EventLog

log = EventLog.open_for_reading(sys.argv[1])
reader = log.reader()
print("ready", flush=True)
seen, rounds, last = 0, 0, int(sys.argv[2])
while seen < last:
    for event in reader.events(1, seen):
        assert event[0] == seen + 1, (event[0], seen)
        seen += 1
    rounds += 1
print(seen, flush=True)
"""

# Has the write lock for 40 of 42 ms, as a run does whose disk is slow, until its input ends.
BUSY_WRITER = """
import select, sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
print("writing", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(0.04)
    connection.execute("ROLLBACK")
"""


def _start(code, *arguments):
    folders = [os.path.dirname(__file__), *sys.path]  # noqa: PTH120  # a path list of texts
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )


def test_a_killed_writer_leaves_every_acknowledged_event_in_an_unbroken_chain(log_path):
    with _start(WRITER, log_path, 1_000_000) as writer:
        for _ in range(40):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        acknowledged = max(
            [acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))]
        )
    with EventLog.open_for_reading(log_path) as log:
        reader = log.reader()
        (info,) = reader.runs()
        events = list(reader.events(1))
        steps = list(reader.steps(1))
        names, texts = request_names(reader.requests(1)), move_texts(reader.moves(1))
    assert info.outcome == "running"
    assert info.last_seq == len(events) >= acknowledged
    assert [event[0] for event in events] == list(range(1, len(events) + 1))
    digest = FIRST_DIGEST
    for step, first, last, *_, stored in steps:
        digest = step_digest(digest, step, events[first - 1 : last], names, texts)
        assert digest == stored
    assert last == len(events)
    assert texts == MOVE_TEXTS


def test_a_log_takes_new_runs_after_its_writer_was_killed(log_path):
    with _start(WRITER, log_path, 1_000_000) as writer:
        writer.stdout.readline()
        writer.kill()
    with EventLog.open(log_path) as log:
        second = log.begin_run(HEADER)
        second.write(grow_events(1, 5))
        second.end("drained", "2031-05-04T03:03:00Z")
        assert [info.outcome for info in log.reader().runs()] == ["running", "drained"]
    assert [entry.name for entry in log_path.parent.iterdir()] == ["run.db"]


def test_another_process_reads_a_log_while_it_is_written(log_path):
    with EventLog.open(log_path) as log:
        writer = log.begin_run(HEADER)
        with _start(FOLLOWER, log_path, 20_000) as follower:
            assert follower.stdout.readline() == "ready\n"
            for step in range(400):
                writer.write(
                    grow_events(step * 50 + 1, 50, step=step),
                    steps=[step_row(step, step * 50 + 1, step * 50 + 50)],
                )
                writer.commit()
            output, errors = follower.communicate()
        assert (output, errors) == ("20000\n", "")


def test_a_slow_reader_keeps_nobody_from_writing_or_closing(log_path):
    log = EventLog.open(log_path, busy_timeout_ms=50)
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 10_000))
    writer.commit()
    with EventLog.open_for_reading(log_path) as other:
        slow = other.reader().events(1)
        next(slow)
        writer.write(grow_events(10_001, 1000))
        writer.end("drained", "2031-05-04T03:03:00Z")
        log.close()
        assert sum(1 for _ in slow) == 9999
        assert other.reader().runs()[0].last_seq == 11_000


def test_a_log_made_while_it_is_being_recognised_is_recognised(log_path):
    class Raced(sqlite3.Connection):
        """Somebody else makes the log right after the first question, if they can."""

        asked = False

        def execute(self, statement, *parameters):
            found = super().execute(statement, *parameters)
            if statement == "PRAGMA application_id" and not Raced.asked:
                Raced.asked = True
                rows = found.fetchall()
                with suppress(LogUnavailable):
                    EventLog.open(log_path, busy_timeout_ms=1).close()
                return Answered(rows)
            return found

    log_path.touch()
    with closing(sqlite3.connect(log_path, factory=Raced, isolation_level=None)) as driver:
        assert is_log(driver, "run.db") in {False, True}
    assert Raced.asked


class Answered(list):
    def fetchall(self):
        return self


def test_several_processes_may_write_runs_into_one_new_file_at_once(log_path):
    writers = [_start(WRITER, log_path, 20) for _ in range(3)]
    for writer in writers:
        _, errors = writer.communicate()
        assert (writer.returncode, errors) == (0, "")
    with EventLog.open_for_reading(log_path) as log:
        runs = log.reader().runs()
        assert [(info.run_id, info.outcome, info.last_seq) for info in runs] == [
            (1, "drained", 1000),
            (2, "drained", 1000),
            (3, "drained", 1000),
        ]
        assert len({info.digest for info in runs}) == 1
    assert [entry.name for entry in log_path.parent.iterdir()] == ["run.db"]


KILLED_IN_A_CHANGE = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # what is changed is on the disk before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE change (text)")
connection.executemany("INSERT INTO change VALUES (?)", [("x" * 100,)] * 2000)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_left_in_the_middle_of_a_change_says_so_and_is_whole_once_opened_to_write(log_path):
    with EventLog.open(log_path) as log:
        log.begin_run(HEADER).end("drained", "2031-05-04T03:03:00Z")
    with _start(KILLED_IN_A_CHANGE, log_path) as killed:
        killed.wait()
    with pytest.raises(LogUnavailable, match="killed while it changed the file: open it for"):
        EventLog.open_for_reading(log_path)
    EventLog.open(log_path).close()
    with EventLog.open_for_reading(log_path) as log:
        assert [info.outcome for info in log.reader().runs()] == ["drained"]
        assert log.damage() is None


def test_a_writer_gets_its_turn_in_the_short_pauses_of_another(log_path):
    with EventLog.open(log_path, busy_timeout_ms=2000) as log:
        writer = log.begin_run(HEADER)
        with _start(BUSY_WRITER, log_path) as other:
            other.stdout.readline()
            for seq in range(1, 21):
                writer.write(grow_events(seq, 1))
                writer.commit()
            other.communicate("")
    assert committed_events(log_path) == 20
