"""`rlt-audit replay`: today's scheduler through a recorded run, without its model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from preempting_runs import growing_run, mixed_run, prompt_first_run, returning_run, urgent_run
from random_runs import random_run
from reseal import Tampered
from typer.testing import CliRunner, Result

import audit
from audit.cli import app
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner import LLM
from runner.recorded import Redrive
from runner.sim import SimRunner

RUNS = [urgent_run, growing_run, returning_run, prompt_first_run, mixed_run]


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def digest(log: EventLog, run_id: int) -> str | None:
    return log.reader().runs()[run_id - 1].digest


@pytest.mark.parametrize("first_seed", range(0, 60, 20))
def test_the_same_revision_gives_the_same_digest(first_seed: int) -> None:
    modes = set()
    for seed in range(first_seed, first_seed + 20):
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        modes.add(json.loads(log.reader().runs()[0].config)["scheduler"]["mode"])
        with EventLog.memory() as again:
            made = Redrive(log, 1, {}).run(again)
            assert digest(again, made.run_id) == digest(log, 1)
            assert made.unrecorded == {}
    assert modes == {"refill", "no_refill", "mixed"}


@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_a_run_with_preemptions_is_identical_when_replayed(make, tmp_path: Path) -> None:
    make(tmp_path / "run.db")
    before = (tmp_path / "run.db").read_bytes()
    result = rlt_audit("replay", tmp_path / "run.db", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["diff"]["verdict"] == "identical"
    assert answer["diff"]["a"]["digest"] == answer["diff"]["b"]["digest"]
    assert (tmp_path / "run.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_aborts_refusals_stops_and_ids_used_again_are_replayed(real_log: Path) -> None:
    result = rlt_audit("replay", real_log)
    assert result.exit_code == 0
    assert "\nidentical\n" in result.stdout


def test_what_if_tells_what_another_configuration_would_have_done(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    urgent_run(old)
    setting = "scheduler.enable_preemption=false"
    result = rlt_audit("replay", old, "--set", setting, "-o", new, "--level", "schedule")
    assert result.exit_code == 1
    assert "same outputs, other schedule" in result.stdout
    assert "b (yield for c)" in result.stdout
    assert result.stdout.endswith(f"the new log: {new} run 1\n")
    assert audit.verify(new).ok
    assert rlt_audit("diff", old, new, "--level", "outputs").exit_code == 0


def test_beyond_the_record_tokens_are_marked(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    config = {"scheduler": {"max_num_seqs": 1}}
    with EventLog.open(old) as log, Engine(SimRunner(), from_mapping(config), log) as engine:
        for name in "ab":
            engine.add_request(name, [7, 7, 7], SamplingParams(max_tokens=3))
        for _ in range(9):
            engine.step()
    result = rlt_audit("replay", old, "--set", "scheduler.max_num_seqs=2", "-o", new)
    assert result.exit_code == 1
    assert "beyond the record: 1 output of b (token 0)" in result.stdout
    answer = json.loads(
        rlt_audit("replay", old, "--set", "scheduler.max_num_seqs=2", "--json").stdout
    )
    assert answer["unrecorded"] == {"b#1": [0]}


def test_a_log_without_its_end_is_status_3(tampered: Tampered) -> None:
    del tampered.events[90:]
    result = rlt_audit("replay", tampered.seal())
    assert result.exit_code == 3
    assert "inconclusive: no difference as far as both logs go (A has no end)" in result.stdout


def test_a_run_of_a_model_is_replayed_without_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    with LLM("demo", db=path) as llm:
        llm.generate(["27+58=", "8+5="], SamplingParams(exit_threshold=0.9, min_loops=1))
    code = (
        "import sys\nfrom audit.cli import app\n"
        f"try:\n    app(['replay', {str(path)!r}])\n"
        "except SystemExit as end:\n    assert 'torch' not in sys.modules\n    sys.exit(end.code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nidentical\n" in done.stdout


# ---- what cannot be driven again ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("scheduler.mode=mixd", "scheduler.mode='mixd': expected one of 'mixed', 'no_refill'"),
        ("scheduler.mod=mixed", "--set scheduler.mod: no such field: did you mean scheduler.mode"),
        ("scheduler.mode=mixed", "scheduler.mode='mixed' needs split prefill"),
        ("scheduler.mode", "--set scheduler.mode: must be SECTION.FIELD=VALUE"),
        ("scheduler.max_num_seqs=0", "scheduler.max_num_seqs=0: must be a whole number"),
    ],
)
def test_a_bad_setting_is_one_sentence_and_writes_nothing(
    setting: str, sentence: str, real_log: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.db"
    assert_one_sentence(rlt_audit("replay", real_log, "--set", setting, "-o", new), sentence)
    assert not new.exists()


def assert_one_sentence(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_a_log_that_lacks_what_a_replay_needs_is_told_so(tampered: Tampered) -> None:
    event = tampered.all("output")[1]
    event.b = None
    sentence = f"cannot be driven again: its `output` at seq {event.seq} records no token"
    assert_one_sentence(rlt_audit("replay", tampered.seal()), sentence)
    event.c = None
    assert_one_sentence(rlt_audit("replay", tampered.seal()), f"{sentence} and exit depth")


def test_an_unreadable_event_is_told_so(tampered: Tampered) -> None:
    submit = tampered.all("submit")[1]
    submit.extra = "{}"
    sentence = f"its `submit` at seq {submit.seq} cannot be read"
    assert_one_sentence(rlt_audit("replay", tampered.seal()), sentence)


def test_the_log_itself_is_never_written_to(real_log: Path, tmp_path: Path) -> None:
    before = real_log.read_bytes()
    link = tmp_path / "link.db"
    link.symlink_to(real_log)
    for new in (real_log, link):
        result = rlt_audit("replay", real_log, "-o", new)
        assert_one_sentence(result, "this is the log that is replayed")
    text = tmp_path / "text.db"
    text.write_text("this is no database, however long it goes on " * 100)
    assert_one_sentence(rlt_audit("replay", real_log, "-o", text), "not an event log")
    assert_one_sentence(rlt_audit("replay", text), "not an event log")
    assert_one_sentence(rlt_audit("replay", real_log, "--run", 3), "there is no run 3; its runs: 1")
    assert real_log.read_bytes() == before


def test_help_has_an_example() -> None:
    result = rlt_audit("replay", "--help")
    assert "Example: rlt-audit replay run.db --set scheduler.mode=mixed" in result.stdout
