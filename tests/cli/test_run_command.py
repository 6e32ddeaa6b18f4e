"""`rlt-fsm run` on the sim: what it prints, what it exits with, and how it says no."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from rlt_fsm import EventLog
from runner import cli
from runner.console import AuditLine, OutputLine, Ran, Summary, as_text
from runner.run_command import DEMO_PROMPTS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rlt_fsm(tmp_path, monkeypatch):
    """Call the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli.app, list(arguments), prog_name="rlt-fsm")

    return call


@pytest.fixture
def workload_file(tmp_path):
    """A workload file with some of its top-level keys replaced."""

    def write(**changes):
        base = {
            "format": "rlt-workload/1",
            "max_model_len": 64,
            "requests": [
                {"id": "a", "prompt_len": 5, "max_tokens": 3},
                {"id": "a", "at": 40, "prompt": [1, 2], "max_tokens": 2},
                {"id": "zero", "at": 1, "prompt_len": 0},
            ],
            "expect": {"finish": {"a": "length", "a#2": "length"}, "refuse": ["zero"]},
        }
        path = tmp_path / "workload.json"
        path.write_text(json.dumps(base | changes))
        return str(path)

    return write


def one_sentence(result):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_prompts_are_shown_in_order_with_depths_and_reason(rlt_fsm):
    result = rlt_fsm(
        "run", "--model", "sim", "--no-audit", "--prompt", "27+58=", "--prompt", "90-17=",
        "--max-tokens", "3", "--exit-threshold", "0.6",
    )  # fmt: skip
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["completion", "exit", "depths", "finish"]
    assert lines[1].startswith("0: 27+58= → ")
    assert lines[2].startswith("1: 90-17= → ")
    assert lines[1].endswith("length")
    column = lines[0].index("exit depths")
    assert lines[1][column] == lines[2][column] == "4"
    assert lines[4].startswith("2 requests, 6 tokens, ")
    assert lines[-1] == "not audited  run.db (run 1)"


def test_without_prompts_a_few_sums_are_run(rlt_fsm):
    result = rlt_fsm("run", "--model", "sim", "--no-audit", "--json")
    prompts = [output["prompt"] for output in json.loads(result.stdout)["outputs"]]
    assert prompts == list(DEMO_PROMPTS)
    assert "27+58=" in prompts


def test_json_has_the_contracts_shape(rlt_fsm, workload_file):
    result = rlt_fsm("run", "--workload", workload_file(), "--db", "x.db", "--json", "--no-audit")
    assert result.exit_code == 0
    ran = json.loads(result.stdout)
    assert list(ran) == ["outputs", "summary", "audit", "db", "run_id"]
    assert [output["request_id"] for output in ran["outputs"]] == ["a", "a#2"]
    assert ran["outputs"][1] == {
        "request_id": "a#2",
        "prompt": [1, 2],
        "text": None,
        "token_ids": ran["outputs"][1]["token_ids"],
        "exit_depths": [4, 4],
        "finish_reason": "length",
    }
    assert ran["summary"]["requests"] == 3
    assert ran["summary"]["tokens"] == 5
    assert ran["summary"]["refused"][0]["request_id"] == "zero"
    assert ran["summary"]["refused"][0]["reason"] == "empty-prompt"
    assert (ran["db"], ran["run_id"], ran["audit"]) == ("x.db", 1, None)


def test_a_refused_request_is_shown_with_its_reason(rlt_fsm, workload_file):
    result = rlt_fsm("run", "--workload", workload_file(), "--no-audit")
    assert "refused zero: prompt_token_ids is empty" in result.stdout


def test_a_failed_expectation_is_told_and_exits_1(rlt_fsm, workload_file):
    path = workload_file(expect={"finish": {"a": "stop"}, "outputs": {"a#2": 2}})
    result = rlt_fsm("run", "--workload", path, "--no-audit")
    assert result.exit_code == 1
    expected = "not as expected: a: expected to finish with stop, it ended with length"
    assert expected in result.stdout
    as_json = json.loads(rlt_fsm("run", "--workload", path, "--no-audit", "--json").stdout)
    assert as_json["summary"]["expect_failures"] == [
        "a: expected to finish with stop, it ended with length"
    ]


def test_a_run_that_does_not_end_stops_at_max_steps_and_exits_1(rlt_fsm, workload_file):
    result = rlt_fsm("run", "--workload", workload_file(expect={"max_steps": 3}), "--no-audit")
    assert result.exit_code == 1
    assert "max_steps: requests were still live after 3 steps" in result.stdout


def test_runs_are_added_to_one_log(rlt_fsm, workload_file, tmp_path):
    for run_id in (1, 2):
        result = rlt_fsm("run", "--workload", workload_file(), "--no-audit")
        assert f"run.db (run {run_id})" in result.stdout
    with EventLog.open_for_reading(tmp_path / "run.db") as log:
        first, second = log.reader().runs()
    assert first.digest == second.digest
    assert first.outcome == "drained"
    assert json.loads(first.workload)["requests"][0]["id"] == "a"


def test_set_changes_the_config_of_a_workload(rlt_fsm, workload_file, tmp_path):
    rlt_fsm(
        "run", "--workload", workload_file(), "--no-audit",
        "--set", "scheduler.max_num_seqs=3", "--set", "cache.layout=shared",
    )  # fmt: skip
    with EventLog.open_for_reading(tmp_path / "run.db") as log:
        (run,) = log.reader().runs()
    config = json.loads(run.config)
    assert config["scheduler"]["max_num_seqs"] == 3
    assert config["cache"]["layout"] == "shared"
    assert json.loads(run.workload)["config"]["scheduler"] == {"max_num_seqs": 3}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workload", "none.json"], "none.json: No such file or directory"),
        (["--model", "sim", "--set", "cache.pages=1"], "--set cache.pages: no such field"),
        (["--model", "sim", "--set", "cache.num_blocks"], "must be SECTION.FIELD=VALUE"),
        (["--model", "sim", "--set", "cache.num_blocks=0"], "cache.num_blocks=0: must be"),
        (["--model", "sim", "--max-tokens", "0"], "max_tokens=0 must be 1 or more"),
        (["--model", "sim", "--prompt", ""], "prompt_token_ids is empty"),
        (["--workload", "w.json", "--prompt", "x"], "--prompt does not go with --workload"),
        (["--workload", "w.json", "--top-k", "3"], "--top-k does not go with --workload"),
        (["--model", "sim", "--db", "none/run.db"], "none/run.db"),
    ],
)
def test_a_mistake_is_one_sentence_and_exits_2(rlt_fsm, arguments, sentence):
    assert sentence in one_sentence(rlt_fsm("run", "--no-audit", *arguments))


def test_a_file_that_is_no_log_is_left_alone(rlt_fsm, tmp_path):
    (tmp_path / "notes.txt").write_text("my notes, for ever mine, not a database at all\n" * 9)
    before = (tmp_path / "notes.txt").read_bytes()
    assert "notes.txt" in one_sentence(rlt_fsm("run", "--model", "sim", "--db", "notes.txt"))
    assert (tmp_path / "notes.txt").read_bytes() == before


def test_an_unknown_key_of_a_workload_names_file_place_and_key(rlt_fsm, workload_file):
    path = workload_file(requests=[{"id": "a", "prompt_len": 1, "promt": 2}])
    assert f"{path}: requests[0]: unknown key 'promt'" in one_sentence(
        rlt_fsm("run", "--workload", path)
    )


def test_an_unknown_option_exits_2(rlt_fsm):
    assert rlt_fsm("run", "--modle", "sim").exit_code == 2


def test_a_fault_that_no_expectation_wants_is_still_a_run(rlt_fsm, workload_file):
    path = workload_file(
        requests=[{"id": "a", "prompt_len": 3, "max_tokens": 4}],
        actions=[{"at": 2, "fail": True}],
        expect={"finish": {"a": "error"}},
    )
    result = rlt_fsm("run", "--workload", path, "--no-audit")
    assert result.exit_code == 0
    assert "Traceback" not in result.stderr


def test_the_command_alone_prints_its_help(rlt_fsm):
    result = rlt_fsm()
    assert result.exit_code == 0
    assert "Usage: rlt-fsm" in result.stdout
    assert "run " in result.stdout


def test_version_prints_one_line(rlt_fsm):
    result = rlt_fsm("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("rlt-fsm ")
    assert len(result.stdout.splitlines()) == 1


def test_help_shows_an_example(rlt_fsm):
    assert "Example: rlt-fsm run --prompt" in rlt_fsm("run", "--help").stdout


# ---- with the audit ----------------------------------------------------------------------------


def test_a_clean_run_ends_with_its_audit(rlt_fsm, workload_file):
    result = rlt_fsm("run", "--workload", workload_file())
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last.startswith("audit clean: ")
    assert "0 findings" in last
    assert last.endswith("run.db (run 1)")


def test_json_has_the_audits_verdict(rlt_fsm, workload_file):
    ran = json.loads(rlt_fsm("run", "--workload", workload_file(), "--json").stdout)
    assert ran["audit"] == {"verdict": "clean", "findings": []}


# ---- a real process ----------------------------------------------------------------------------


def test_a_real_process_runs_the_sim_without_torch(tmp_path, workload_file):
    code = (
        "import sys; from runner.cli import app\n"
        "try: app(sys.argv[1:], prog_name='rlt-fsm')\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--workload", workload_file(), "--no-audit"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "False\n"
    assert "not audited  run.db (run 1)" in done.stdout


# ---- exit statuses -----------------------------------------------------------------------------


def ran(*, verdict="clean", expect_failures=(), finish_reason="length"):
    output = OutputLine(
        request_id="a",
        prompt="x",
        text="y",
        token_ids=(1,),
        exit_depths=(4,),
        finish_reason=finish_reason,
    )
    summary = Summary(
        requests=1,
        tokens=1,
        steps=1,
        batches=1,
        preemptions=0,
        mean_exit_depth=4.0,
        seconds=0.0,
        refused=(),
        expect_failures=expect_failures,
    )
    audit = None if verdict is None else AuditLine(verdict=verdict, findings=())
    return Ran(outputs=[output], summary=summary, audit=audit, db="run.db", run_id=1)


@pytest.mark.parametrize(
    ("finished", "has_expectations", "status"),
    [
        (ran(), True, 0),
        (ran(verdict=None), True, 0),
        (ran(verdict="findings"), True, 1),
        (ran(verdict="inconclusive"), True, 3),
        (ran(expect_failures=("a: …",)), True, 1),
        (ran(expect_failures=("a: …",), verdict="inconclusive"), True, 1),
        (ran(finish_reason="error"), True, 0),
        (ran(finish_reason="error"), False, 1),
    ],
)
def test_the_exit_status_tells_what_came_out(finished, has_expectations, status):
    assert cli._status(finished, has_expectations=has_expectations) == status


# ---- what people see ---------------------------------------------------------------------------


def test_a_completion_follows_its_prompt_on_one_line_whatever_it_holds():
    finished = ran()
    odd = replace(finished.outputs[0], prompt="27+58=", text="85\n\x1b[31mred é")
    text = as_text(replace(finished, outputs=[finished.outputs[0], odd]), "audit clean")
    assert text.splitlines()[:3] == [
        "completion               exit depths  finish",
        "xy                       4            length",
        r"27+58=85\n\x1b[31mred é  4            length",
    ]


def test_a_long_list_of_outputs_is_cut_and_says_so():
    finished = ran()
    text = as_text(replace(finished, outputs=finished.outputs * 100), "audit clean")
    assert "… and 40 more (--json lists all)" in text
