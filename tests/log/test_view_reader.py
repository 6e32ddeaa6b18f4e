"""The public views by column, and as rows: what exports are made of."""

import sqlite3

import pytest

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.schema import CREATE, VIEWS
from rlt_fsm.log.view_columns import VIEW_COLUMNS
from rlt_fsm.log.view_reader import ViewReader
from runner.sim import SimRunner

TYPES = {"whole": {"integer"}, "real": {"real"}, "text": {"text"}}

IN_ORDER_OF = {
    "run": "run_id",
    "request": "submitted_seq",
    "batch": "ticket",
    "batch_row": "ticket",
    "step": "step",
}


@pytest.fixture
def two_runs(log_path):
    """Two runs that are short of room; the second is left in the middle."""
    config = from_mapping(
        {
            "scheduler": {"max_num_seqs": 2, "policy": "priority", "enable_preemption": True},
            "cache": {"num_blocks": 24, "block_size": 2, "incremental_allocation": True},
        }
    )
    with EventLog.open(log_path) as log:
        for steps in (200, 20):
            engine = Engine(SimRunner(), config, log)
            for number in range(5):
                params = SamplingParams(max_tokens=3, priority=-number, logprobs=0)
                engine.add_request(f"r{number}", [number + 1] * 4, params)
                engine.step()
            while engine.has_unfinished_requests() and engine.current_step < steps:
                engine.step()
            if steps == 200:
                engine.close()
            else:
                engine.abort_request("r0")  # commits
    return log_path


def test_the_columns_are_those_of_the_views():
    connection = sqlite3.connect(":memory:")
    for statement in CREATE:
        connection.execute(statement)
    shown = {
        view: [row[1] for row in connection.execute(f'PRAGMA table_info("{view}")')]
        for view in VIEWS
    }
    connection.close()
    assert {view: list(columns) for view, columns in VIEW_COLUMNS.items()} == shown


@pytest.mark.parametrize("view", VIEW_COLUMNS)
def test_every_value_is_of_its_columns_kind(two_runs, view):
    connection = sqlite3.connect(two_runs)
    for column, kind in VIEW_COLUMNS[view].items():
        sql = f'SELECT DISTINCT typeof("{column}") FROM "{view}"'
        found = {name for (name,) in connection.execute(sql)}
        assert found <= TYPES[kind] | {"null"}, column
    connection.close()


@pytest.mark.parametrize("view", VIEW_COLUMNS)
def test_the_rows_are_those_of_the_view_in_the_order_of_the_log(two_runs, view):
    connection = sqlite3.connect(two_runs)
    shown = connection.execute(f'SELECT * FROM "{view}" WHERE run_id = 1').fetchall()
    connection.close()
    with ViewReader(two_runs) as views:
        rows = list(views.rows(view, 1))
    assert rows == shown
    place = list(VIEW_COLUMNS[view]).index(IN_ORDER_OF.get(view, "seq"))
    column = [row[place] for row in rows]
    assert column == sorted(column)


def test_a_run_that_goes_on_is_read_as_it_stood_at_one_moment(log_path):
    with EventLog.open(log_path) as log, Engine(SimRunner(), log=log) as engine:
        engine.add_request("a", [1, 2], SamplingParams(max_tokens=3))
        with ViewReader(log_path) as views:
            before = len(list(views.rows("event", 1)))
            while engine.has_unfinished_requests():
                engine.step()
            assert len(list(views.rows("event", 1))) == before
        with ViewReader(log_path) as views:
            assert len(list(views.rows("event", 1))) > before


def test_an_unknown_run_has_no_rows(two_runs):
    with ViewReader(two_runs) as views:
        assert views.names() == list(VIEW_COLUMNS)
        assert list(views.rows("event", 9)) == []


def test_a_missing_file_is_said_in_a_sentence_and_not_made(tmp_path):
    with pytest.raises(LogUnavailable, match="there is no such file"):
        ViewReader(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
