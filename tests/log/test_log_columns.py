"""Events column by column are the same events, whatever their cells hold."""

from itertools import chain

import pytest
from log_rows import HEADER, grow_events

from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import CHUNK_ROWS

T_NS = 3


def _cells(columns):
    """The rows of chunks of columns, without the time."""
    rows = chain.from_iterable(zip(*chunk, strict=True) for chunk in columns)
    return [(*row[:T_NS], *row[T_NS + 1 :]) for row in rows]


def _without_time(rows):
    return [(*row[:T_NS], *row[T_NS + 1 :]) for row in rows]


@pytest.fixture(params=["memory", "file"])
def log(request, tmp_path):
    with (
        EventLog.memory() if request.param == "memory" else EventLog.open(tmp_path / "r.db") as log
    ):
        yield log


def _write(log, events):
    writer = log.begin_run(HEADER)
    writer.write(events)
    writer.commit()
    return log.reader()


def test_every_chunk_of_a_long_run(log):
    reader = _write(log, grow_events(1, 2 * CHUNK_ROWS + 7))
    rows = _without_time(reader.events(1))
    assert len(rows) == 2 * CHUNK_ROWS + 7
    assert _cells(reader.columns(1)) == rows
    assert _cells(reader.columns(1, CHUNK_ROWS + 3)) == rows[CHUNK_ROWS + 3 :]
    assert _cells(reader.columns(1, len(rows))) == []
    assert _cells(reader.columns(2)) == []


@pytest.mark.parametrize(
    "cells",
    [
        {"d": 0.1 + 0.2},  # JSON would round it
        {"d": -1e-300},
        {"d": "text"},
        {"d": b"\x00\xff"},
        {"reason": 'a "quoted" ☃ \x07 reason'},
        {"reason": "with\x00null"},
        {"extra": '{"take": [1, 2], "text": "\\n"}'},
        {"a": 2**62, "b": -(2**62)},
    ],
)
def test_cells_that_json_would_change(log, cells):
    names = ("seq", "step", "ticket", "t_ns", "ref", "move", "blocks", "cause", "reason")
    names += ("a", "b", "c", "d", "e", "extra")
    events = grow_events(1, 9)
    fifth = dict(zip(names, events[4], strict=True)) | cells
    events[4] = tuple(fifth.values())
    reader = _write(log, events)
    rows = _without_time(reader.events(1))
    assert _cells(reader.columns(1)) == rows
    assert [type(cell) for row in _cells(reader.columns(1)) for cell in row] == [
        type(cell) for row in rows for cell in row
    ]


def test_columns_end_where_they_did_when_they_were_asked_for(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 5))
    writer.commit()
    columns = log.reader().columns(1)
    writer.write(grow_events(6, 5))
    writer.commit()
    assert len(_cells(columns)) == 5
