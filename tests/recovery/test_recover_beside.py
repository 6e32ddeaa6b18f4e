"""`Engine.recover` in the process whose engine was given up, while a commit of it is under way."""

import threading

import pytest
from recovery.scenes import config_of, serve, sim, wanted

import audit
from rlt_fsm import Engine, EventLog, recorder
from rlt_fsm.log import sql_transactions
from rlt_fsm.log.sql_transactions import Transactions


@pytest.mark.parametrize("same_log", [True, False], ids=["same log", "by its path"])
def test_a_commit_that_is_under_way_when_an_engine_is_given_up_is_recovered(
    tmp_path, monkeypatch, same_log
):
    stored = threading.Event()
    store = Transactions._store

    def when_set(self, transaction):
        assert stored.wait(10), "the test sets it"
        store(self, transaction)

    monkeypatch.setattr(sql_transactions, "SLOW_IN_A_ROW", 0)
    monkeypatch.setattr(Transactions, "_store", when_set)
    with EventLog.open(tmp_path / "run.db") as log:
        engine = Engine(sim(), config_of("plain", durability="group"), log)
        for _, name, prompt, params in wanted():
            engine.add_request(name, prompt, params)
        monkeypatch.setattr(recorder, "GATHERED_EVENTS", 1)
        engine.step()
        engine.step()
        committed = log.reader().runs()[0].last_seq
        threading.Timer(0.3, stored.set).start()
        with Engine.recover(log if same_log else tmp_path / "run.db", sim()) as again:
            assert again.last_events[0][0] > committed + 1
            serve(again, wanted())
    assert audit.verify(tmp_path / "run.db").ok
