"""How often an id was used: found in the log, so that an engine's memory does not grow with ids."""

import sqlite3
from contextlib import closing

import pytest

from rlt_fsm import Engine, EventLog, RequestRefused, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

FEW = SamplingParams(max_tokens=1)


def _use(engine, *names):
    for name in names:
        engine.add_request(name, [1, 2], FEW)
        while engine.has_unfinished_requests():
            engine.step()


def test_an_engine_with_a_log_file_keeps_no_ids_and_counts_their_uses(tmp_path):
    with EventLog.open(tmp_path / "run.db") as log, Engine(SimRunner(), log=log) as engine:
        _use(engine, "a", "b", "a")
        with pytest.raises(RequestRefused):
            engine.add_request("a", [], FEW)
        _use(engine, "a")
        assert engine.state.generations.kept() == {}
        assert engine.state.generations.newest("a") == 4
        assert "b" in engine.state.generations
        assert "c" not in engine.state.generations


def test_runs_of_one_file_count_apart(tmp_path):
    with EventLog.open(tmp_path / "run.db") as log:
        for _ in range(2):
            with Engine(SimRunner(), log=log) as engine:
                _use(engine, "a")
                assert engine.state.generations.newest("a") == 1


def test_a_recovered_run_goes_on_counting(tmp_path):
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        engine = Engine(SimRunner(), log=log)
        _use(engine, "a", "a")
        engine.add_request("b", [1], FEW)  # durable: the engine is left without its end
    with Engine.recover(path, SimRunner()) as engine:
        assert engine.state.generations.newest("a") == 2
        _use(engine, "a")
        assert engine.state.generations.newest("a") == 3


@pytest.mark.parametrize("place", ["memory", "off"])
def test_where_the_log_finds_nothing_the_engine_remembers(tmp_path, place):
    durability = "off" if place == "off" else "group"
    config = from_mapping({"execution": {"durability": durability}})
    with (
        EventLog.memory() if place == "memory" else EventLog.open(tmp_path / "run.db") as log,
        Engine(SimRunner(), config, log) as engine,
    ):
        _use(engine, "a", "a")
        assert engine.state.generations.kept() == {"a": 2}


def test_a_file_without_the_index_gets_it_when_it_is_next_written_to(tmp_path):
    path = tmp_path / "run.db"
    EventLog.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX request_by_id")
    with EventLog.open(path) as log, Engine(SimRunner(), log=log) as engine:
        _use(engine, "a", "a")
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert ("request_by_id",) in names
