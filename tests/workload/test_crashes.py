"""The `crash` action: the run ends without closing, then recovers."""

import json

import pytest
from told import triggers
from typer.testing import CliRunner

import audit
from rlt_fsm import EventLog
from rlt_fsm.workload import parse
from runner.cli import app
from runner.simulate_check import run_logged
from runner.simulate_workloads import random_workload


def _got(driven):
    return {r.label: (r.token_ids, r.exit_depths, r.finish_reason) for r in driven.result.requests}


CONFIGS = {
    "synchronous": {},
    "asynchronous": {"execution": {"async_scheduling": True, "max_in_flight": 3}},
    "step": {"execution": {"durability": "step"}},
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("at", [0, 1, 4, 9, 200])
def test_whenever_it_comes_everybody_gets_what_they_would_have_got(run_workload, config, at):
    without = run_workload(config=CONFIGS[config])
    crashed = run_workload(config=CONFIGS[config], actions=[{"at": at, "crash": True}])
    assert _got(crashed) == _got(without)


def test_twice_and_with_an_abort_in_the_same_step(run_workload):
    actions = [
        {"at": 3, "crash": True},
        {"at": 6, "abort": "a"},
        {"at": 6, "crash": True},
        {"abort": "b", "when": {"request": "b", "work": "TAKEN:DECODE_CODA", "nth": 1}},
    ]
    got = _got(run_workload(actions=actions))
    assert got["a"][2] == got["b"][2] == "abort"


@pytest.mark.parametrize("ats", [(0, 1), (0, 0, 1), (0, 1, 2, 3, 9)])
def test_of_an_idle_engine_though_the_recovery_takes_the_step_of_the_next_one(run_workload, ats):
    crashes = [{"at": at, "crash": True} for at in ats]
    lines = run_workload(requests=[], actions=crashes).lines
    assert [line.split()[1] for line in lines] == ["open", *["recover"] * len(ats), "close"]


def test_an_action_may_wait_for_what_a_crash_brings(run_workload):
    actions = [
        {"at": 4, "crash": True},
        {"abort": "a", "when": {"request": "a", "status": "WAITING", "nth": 2}},
    ]
    assert _got(run_workload(actions=actions))["a"][2] == "abort"


def test_the_same_file_gives_the_same_digest(tmp_path, workload_text):
    text = workload_text(actions=[{"at": 4, "crash": True}, {"at": 7, "crash": True}])
    digests = []
    for name in ("one.db", "two.db"):
        with EventLog.open(tmp_path / name) as log:
            assert run_logged(parse(text), log, check=True) is None
            digests.append(log.reader().runs()[0].digest)
        assert audit.verify(tmp_path / name).verdict == "clean"
    assert digests[0] == digests[1]


def test_the_command_runs_it_and_audits_it_clean(tmp_path, workload_text):
    path, db = tmp_path / "w.json", tmp_path / "w.db"
    actions = [{"at": 4, "crash": True}]
    expect = {"finish": {"a": "length", "b": "length"}, "max_preemptions": 2}
    path.write_text(workload_text(actions=actions, expect=expect), encoding="utf-8")
    done = CliRunner().invoke(
        app, ["run", "--workload", str(path), "--db", str(db), "--json"], prog_name="rlt-fsm"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["audit"]["verdict"] == "clean"
    with EventLog.open_for_reading(db) as log:
        assert "recover" in triggers(log)


def test_random_workloads_crash_now_and_then():
    crashing = [
        seed
        for seed in range(100)
        if any(action.crash for action in random_workload(seed, crashes=True).actions)
    ]
    assert 5 < len(crashing) < 40
    assert not any(action.crash for action in random_workload(crashing[0]).actions)
