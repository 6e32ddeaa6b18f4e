"""The operational log: what is told, to whom, in which form, and that a host's own set-up stays."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from rlt_fsm import ConfigError, Engine, EventLog, RequestRefused, SamplingParams, oplog
from rlt_fsm.batch import Batch
from rlt_fsm.config import from_mapping
from rlt_fsm.oplog import Format, Level, Settings
from runner.sim import SimRunner

ROOT = Path(__file__).parents[2]
OURS = (oplog.LEVEL, oplog.FORMAT, oplog.SLOW_STEP_MS)


@pytest.fixture(autouse=True)
def _nothing_is_configured(monkeypatch):
    for variable in OURS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(oplog, "_chosen", [])
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def one_run(*, fails=False, log=None):
    """A run with a refusal, and, if asked for, a batch that fails."""
    runner = SimRunner()
    config = from_mapping({"cache": {"num_blocks": 24, "block_size": 2}})
    with Engine(runner, config, log) as engine:
        engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=3))
        with pytest.raises(RequestRefused):
            engine.add_request("long", [1] * 200)
        if fails:
            runner.fail_next()
        while engine.has_unfinished_requests():
            engine.step()
    return engine


def objects(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


# ---- where nobody configured structlog -----------------------------------------------------------


def test_a_run_that_goes_well_prints_nothing(capsys):
    one_run()
    assert capsys.readouterr().err == ""


def test_a_failure_is_told_without_being_asked(capsys):
    one_run(fails=True)
    first = capsys.readouterr().err.splitlines()[0]
    assert "batch failed" in first
    assert "run_id=1" in first
    assert "step=0" in first


def test_the_environment_decides_level_and_form(capsys, monkeypatch):
    monkeypatch.setenv("RLT_FSM_LOG_LEVEL", "INFO")
    monkeypatch.setenv("RLT_FSM_LOG_FORMAT", "json")
    one_run(fails=True)
    started, refused, failed, ended = objects(capsys)
    assert {line["run_id"] for line in (started, refused, failed, ended)} == {1}
    assert (started["event"], started["level"]) == ("run started", "info")
    assert refused["event"] == "refused"
    assert (refused["request_id"], refused["step"]) == ("long", 0)
    assert refused["reason"].startswith("blocks need=")
    assert (failed["event"], failed["level"], failed["ticket"]) == ("batch failed", "error", 0)
    assert "InjectedFaultError" in failed["exception"]
    assert (ended["event"], ended["outcome"]) == ("run ended", "drained")
    assert all(line["timestamp"].endswith("Z") for line in (started, refused, failed, ended))


@pytest.mark.parametrize(
    ("variable", "value", "must"),
    [
        ("RLT_FSM_LOG_LEVEL", "loud", "one of debug, info, warning, error, critical"),
        ("RLT_FSM_LOG_FORMAT", "xml", "one of console, json"),
        ("RLT_FSM_SLOW_STEP_MS", "soon", "a number of milliseconds, 0 or more"),
        ("RLT_FSM_SLOW_STEP_MS", "-1", "a number of milliseconds, 0 or more"),
        ("RLT_FSM_SLOW_STEP_MS", "nan", "a number of milliseconds, 0 or more"),
    ],
)
def test_a_variable_that_is_not_understood_is_named_and_no_run_begins(
    monkeypatch, variable, value, must
):
    monkeypatch.setenv(variable, value)
    with EventLog.memory() as log:
        with pytest.raises(ConfigError) as raised:
            Engine(SimRunner(), log=log)
        assert str(raised.value) == f"{variable}={value}: must be {must}"
        assert log.reader().runs() == []


def test_empty_variables_are_as_good_as_none():
    assert Settings.of(dict.fromkeys(OURS, "")) == Settings()


def test_what_a_command_line_chose_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("RLT_FSM_LOG_LEVEL", "loud")
    chosen = Settings(level=Level.ERROR, format=Format.JSON, slow_step_ms=1)
    oplog.choose(chosen)
    assert oplog.settings() == chosen


# ---- slow steps ----------------------------------------------------------------------------------


def test_a_step_is_slow_from_the_threshold_on_and_tells_what_it_ran(capsys, monkeypatch):
    monkeypatch.setenv("RLT_FSM_LOG_FORMAT", "json")
    monkeypatch.setenv("RLT_FSM_SLOW_STEP_MS", "0")  # every step
    engine = one_run()
    lines = objects(capsys)
    assert {line["event"] for line in lines} == {"slow step"}
    assert [line["step"] for line in lines] == list(range(engine.state.next_ticket))
    assert lines[0] | {"timestamp": "", "ms": 0} == {
        "event": "slow step", "level": "warning", "run_id": 1, "step": 0, "ms": 0,
        "ticket": 0, "operation": "RECURRENT", "rows": 1, "timestamp": "",
    }  # fmt: skip


def test_slowness_is_measured_from_the_beginning_of_the_step(monkeypatch):
    now = [0]
    monkeypatch.setattr(oplog, "now_ns", lambda: now[0])
    monkeypatch.setenv("RLT_FSM_SLOW_STEP_MS", "250")
    capture = LogCapture()
    structlog.configure(processors=[capture])
    steps = oplog.SlowSteps(oplog.logger(run_id=7))
    batch = Batch(4, 9, "CODA", ("DECODE_CODA",), (), "coda-ready")
    for took_ms, submitted in ((249, batch), (250, batch), (1000, None)):
        steps.begin()
        now[0] += took_ms * 1_000_000
        steps.end(9, submitted)
    slow = {"event": "slow step", "log_level": "warning", "run_id": 7, "step": 9}
    assert capture.entries == [
        slow | {"ms": 250, "ticket": 4, "operation": "CODA", "rows": 0},
        slow | {"ms": 1000},
    ]


# ---- where a host configured structlog -----------------------------------------------------------


def test_a_hosts_own_set_up_stays_whatever_the_environment_says(capsys, monkeypatch):
    monkeypatch.setenv("RLT_FSM_LOG_LEVEL", "critical")
    monkeypatch.setenv("RLT_FSM_LOG_FORMAT", "json")
    capture = LogCapture()
    structlog.configure(processors=[capture])
    before = structlog.get_config()
    one_run()
    assert structlog.get_config() == before
    assert capsys.readouterr().err == ""
    assert [entry["event"] for entry in capture.entries] == ["run started", "refused", "run ended"]


def test_no_line_is_told_of_a_single_row():
    capture = LogCapture()
    structlog.configure(processors=[capture])
    with Engine(SimRunner()) as engine:
        for name in "abcdef":
            engine.add_request(name, [1] * 5, SamplingParams(max_tokens=8))
        while engine.has_unfinished_requests():
            engine.step()
    assert [entry["event"] for entry in capture.entries] == ["run started", "run ended"]


# ---- the command ---------------------------------------------------------------------------------


def rlt_fsm_run(tmp_path, *options, **environment):
    workload = {
        "format": "rlt-workload/1",
        "max_model_len": 32,
        "requests": [
            {"id": "a", "prompt_len": 3, "max_tokens": 2},
            {"id": "long", "prompt_len": 30, "max_tokens": 30},
        ],
    }
    (tmp_path / "w.json").write_text(json.dumps(workload))
    command = "from runner.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "run", "--workload", "w.json", "--json", *options],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "", **environment},
    )  # fmt: skip


def test_the_command_takes_flags_before_variables_and_keeps_results_on_stdout(tmp_path):
    quiet = rlt_fsm_run(tmp_path)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    by_variable = rlt_fsm_run(tmp_path, RLT_FSM_LOG_LEVEL="INFO", RLT_FSM_LOG_FORMAT="Json")
    lines = [json.loads(line) for line in by_variable.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["run started", "refused", "run ended"]
    assert {line["run_id"] for line in lines} == {2}
    by_flag = rlt_fsm_run(tmp_path, "--log-level", "error", RLT_FSM_LOG_LEVEL="info")
    assert by_flag.stderr == ""
    slow = rlt_fsm_run(tmp_path, "--slow-step-ms", "0", "--log-format", "json")
    steps = [json.loads(line) for line in slow.stderr.splitlines()]
    assert {line["event"] for line in steps} == {"slow step"}
    for done in (quiet, by_variable, by_flag, slow):
        assert json.loads(done.stdout)["summary"]["requests"] == 2


def test_the_command_refuses_a_level_that_there_is_not(tmp_path):
    done = rlt_fsm_run(tmp_path, RLT_FSM_LOG_LEVEL="loud")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'loud' is not one of 'debug', 'info'" in done.stderr
    assert not (tmp_path / "run.db").exists()
