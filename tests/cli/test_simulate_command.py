"""`rlt-fsm simulate`: what it prints, writes and exits with, and how it says no."""

import json

import pytest
import structlog
from typer.testing import CliRunner

from rlt_fsm.workload import load
from runner import cli
from runner.sim_kv import SimKV

CLEAN = "0:20"


@pytest.fixture
def rlt_fsm(tmp_path, monkeypatch):
    """Call the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli.app, list(arguments), prog_name="rlt-fsm")

    yield call
    structlog.reset_defaults()


@pytest.fixture
def leaks(monkeypatch):
    """A runner that forgets nothing: the first seed that has a request fails."""
    monkeypatch.setattr(SimKV, "release", lambda *_: None)


def test_clean_seeds_are_counted_and_exit_0(rlt_fsm, tmp_path):
    result = rlt_fsm("simulate", "--seeds", CLEAN)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.startswith("seeds 0:20: 20 workloads, ")
    assert second == "every invariant held in every one"
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_json_tells_what_was_run(rlt_fsm):
    result = rlt_fsm("simulate", "--seeds", CLEAN, "--json")
    printed = json.loads(result.stdout)
    assert list(printed) == [
        *("seeds", "workloads", "steps", "longest", "events", "preemptions", "seconds"),
        *("triggers", "failed"),
    ]
    assert (printed["seeds"], printed["workloads"], printed["failed"]) == ("0:20", 20, None)
    assert sum(printed["triggers"].values()) == printed["events"]


@pytest.mark.usefixtures("leaks")
def test_a_failing_seed_is_printed_and_its_small_workload_is_written(rlt_fsm, tmp_path):
    result = rlt_fsm("simulate", "--seeds", "0:20", "--out", "failed/here")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("seeds 0:1: 1 workload, ")
    assert lines[1].startswith("seed 0 fails; 2 of its 12 requests will do:")
    path = tmp_path / "failed" / "here" / "simulate-0.json"
    assert lines[-2] == "once more: rlt-fsm simulate --workload failed/here/simulate-0.json"
    assert lines[-1] == "its origin: rlt-fsm simulate --seeds 0:1"
    workload = load(path)
    assert workload.name == "simulate-0"
    assert workload.about.startswith("seed 0: ")
    assert len(workload.requests) == 2

    again = rlt_fsm("simulate", "--workload", str(path))
    assert again.exit_code == 1
    assert again.stdout.splitlines()[1:] == lines[2:-3]


@pytest.mark.usefixtures("leaks")
def test_json_names_the_failing_seed_and_its_file(rlt_fsm, tmp_path):
    result = rlt_fsm("simulate", "--seeds", "3:20", "--json")
    assert result.exit_code == 1
    failed = json.loads(result.stdout)["failed"]
    assert failed["seed"] == 3
    assert failed["workload"] == "simulate-3.json"
    assert (tmp_path / "simulate-3.json").exists()
    assert failed["requests"] == 2
    assert failed["requests_before"] > 2
    assert list(failed["failures"][0]) == ["kind", "message", "seq", "step"]


def test_a_stall_within_steps_is_a_failure_that_run_shows_too(rlt_fsm):
    result = rlt_fsm("simulate", "--seeds", "0:20", "--steps", "2")
    assert result.exit_code == 1
    assert "stall step 2: 1 requests are still live after 2 steps" in result.stdout
    ran = rlt_fsm("run", "--workload", "simulate-0.json")
    assert ran.exit_code == 1
    assert "max_steps: requests were still live after 2 steps" in ran.stdout


def test_fresh_seeds_are_told_at_once_and_again_with_the_result(rlt_fsm):
    result = rlt_fsm("simulate", "--seconds", "0")
    assert result.exit_code == 0
    told = int(result.stderr.removeprefix("fresh seeds from "))
    assert f"seeds {told}:{told + 1}: 1 workload, " in result.stdout


def test_a_clean_workload_file_exits_0(rlt_fsm, tmp_path):
    (tmp_path / "w.json").write_text(
        '{"format": "rlt-workload/1", "requests": [{"id": "a", "prompt_len": 3}]}'
    )
    result = rlt_fsm("simulate", "--workload", "w.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "every invariant held"
    as_json = json.loads(rlt_fsm("simulate", "--workload", "w.json", "--json").stdout)
    assert as_json["failures"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--seeds", "5"), "--seeds 5: must be A:B"),
        (("--seeds", "5:5"), "--seeds 5:5: must be A:B"),
        (("--seeds", "-1:5"), "--seeds -1:5: must be A:B"),
        (("--seeds", "a:b"), "--seeds a:b: must be A:B"),
        (("--seeds", "0:1", "--workload", "w.json"), "--seeds does not go with --workload"),
        (("--workload", "nowhere.json"), "nowhere.json: No such file or directory"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exits_2(rlt_fsm, arguments, sentence):
    result = rlt_fsm("simulate", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {sentence}")


@pytest.mark.usefixtures("leaks")
def test_a_folder_that_cannot_be_written_is_one_sentence(rlt_fsm, tmp_path):
    (tmp_path / "file").write_text("")
    result = rlt_fsm("simulate", "--seeds", "0:1", "--out", "file")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: file/simulate-0.json: ")
