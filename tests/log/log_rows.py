"""Rows for the tests of the log: short ways to write events by the texts of their moves."""

import sqlite3

from rlt_fsm.log.digest import move_texts
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.move_rows import MOVE_ROWS
from rlt_fsm.log.port import EventRow, RequestRow, RunHeader, StepRow

HEADER = RunHeader(
    started_at="2031-05-04T03:02:01Z",
    schema_version=1,
    engine_version="0.1.0",
    revision="abc123",
    config='{"scheduler":{"max_num_seqs":2}}',
    model='{"name":"sim","depths":4}',
    workload=None,
)

MOVE_TEXTS = move_texts(MOVE_ROWS)
_NUMBERS = {text: number for number, text in enumerate(MOVE_TEXTS)}


def move(text):
    """The number of a move: `grow`, or `select||QUEUED:SPECULATIVE>TAKEN:SPECULATIVE||`."""
    return _NUMBERS[text if "|" in text else f"{text}||||"]


class Script:
    """Events of one run in order; `seq` and `t_ns` (1000 for each event) count themselves."""

    def __init__(self):
        self.events = []

    def add(self, text, *, step, ticket=None, ref=None, blocks=None, cause=None, reason=None,
            columns=(), extra=None):  # fmt: skip
        seq = len(self.events) + 1
        a, b, c, d, e = (*columns, *(None,) * (5 - len(columns)))
        row = (seq, step, ticket, seq * 1000, ref, move(text), blocks, cause, reason)
        self.events.append(EventRow(*row, a, b, c, d, e, extra))
        return seq


def grow_events(first_seq, count, *, step=0):
    """`count` plain tuples, as the engine writes them."""
    return [
        (seq, step, None, seq * 1000, 0, move("grow"), seq % 7, None, None, None, None, None, None,
         None, f'{{"take":[{seq}]}}')
        for seq in range(first_seq, first_seq + count)
    ]  # fmt: skip


def step_row(step, first_seq, last_seq, digest=b"\x07" * 32):
    return StepRow(step, first_seq, last_seq, None, 1, 2, 30, 4, 5, digest)


REQUESTS = [RequestRow(0, "a", 1), RequestRow(1, "b", 1), RequestRow(2, "a", 2)]


def make_log(path, events=3):
    with EventLog.open(path) as log:
        writer = log.begin_run(HEADER)
        writer.write(grow_events(1, events))
        writer.commit()


def committed_events(path):
    with EventLog.open_for_reading(path) as log:
        return sum(1 for _ in log.reader().events(1))


def assert_one_sentence(error, path):
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert "sqlite3" not in text


def query(path, sql):
    """The rows of a query, as any tool that reads SQLite gets them."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def view(path, name, columns="*", where="run_id = 1"):
    return query(path, f"SELECT {columns} FROM {name} WHERE {where}")


def write_run(path, events, requests=(), steps=(), *, header=HEADER, end=None):
    with EventLog.open(path) as log:
        writer = log.begin_run(header)
        writer.write(events, requests, steps)
        writer.commit()
        if end is not None:
            writer.end(end, "2031-05-04T03:03:00Z")
