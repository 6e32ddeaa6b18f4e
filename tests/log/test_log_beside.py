"""What is done beside the log's caller is done where no thread can be had, too."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from log_rows import HEADER, committed_events, grow_events

from rlt_fsm.log import sql_transactions, wal

TESTS = Path(__file__).resolve().parents[1]

# Writes ten commits, each left to a thread and each followed by a copy of the WAL.
SERVING = """
import atexit, sys, threading
sys.path[:0] = [{root!r}, {tests!r}]
from log_rows import HEADER, grow_events
from rlt_fsm import EventLog
from rlt_fsm.log import sql_transactions, wal
sql_transactions.SLOW_IN_A_ROW = wal.COPY_BYTES = 0
log = EventLog.open({path!r})
writer = log.begin_run(HEADER)
def serve():
    if threading.current_thread() is not threading.main_thread():
        threading.main_thread().join()
    for seq in range(1, 11):
        writer.write(grow_events(seq, 1))
        writer.commit_soon()
    writer.commit()
    log.close()
    print("served")
"""


@pytest.mark.parametrize(
    "begin", ["threading.Thread(target=serve).start()", "atexit.register(serve)"]
)
def test_a_program_whose_main_thread_is_done_still_writes_its_log(log_path, begin):
    program = SERVING.format(
        root=str(TESTS.parent), tests=str(Path(__file__).parent), path=str(log_path)
    )
    done = subprocess.run(
        [sys.executable, "-c", program + begin], capture_output=True, text=True, check=False
    )
    assert done.stdout == "served\n", done.stderr
    assert committed_events(log_path) == 10


def test_where_the_system_gives_no_thread_the_caller_stores_and_copies(
    file_log, log_path, monkeypatch
):
    monkeypatch.setattr(sql_transactions, "SLOW_IN_A_ROW", 0)
    monkeypatch.setattr(wal, "COPY_BYTES", 0)
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    writer = file_log.begin_run(HEADER)
    writer.write(grow_events(1, 3))
    assert writer.commit_soon()
    assert writer.durable_seq == 3
    monkeypatch.undo()
    writer.write(grow_events(4, 2))
    writer.commit_soon()
    writer.commit()
    assert committed_events(log_path) == 5


def _refuse(_thread):
    raise RuntimeError("can't start new thread")
