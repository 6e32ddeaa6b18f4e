"""`rlt-audit report`: what it writes, what it says, and its exit status."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from random import Random

import mutations
import pytest
from reseal import Tampered
from typer.testing import CliRunner

import audit
from audit.cli import app
from audit.reporting.figures import run_view
from audit.reporting.page import number, render
from rlt_fsm import Engine, EventLog, SamplingParams
from runner.sim import SimRunner


def rlt_audit(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_it_says_what_it_wrote(logs, tmp_path):
    out = tmp_path / "r.html"
    result = rlt_audit(logs("busy"), "-o", out)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    with sqlite3.connect(logs("busy")) as db:
        ((events, steps),) = db.execute("select count(*), count(distinct step) from event")
    db.close()
    assert first == f"busy.db run 1: clean, {events:,} events, {steps} steps, 24 requests"
    assert second == f"{out}  {out.stat().st_size / 1e6:.1f} MB"
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_findings_are_no_failure_of_the_report(logs, tmp_path):
    result = rlt_audit(logs("with_findings"), "-o", tmp_path / "r.html", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["runs"][0]["verdict"] == "findings"
    assert answer["bytes"] == (tmp_path / "r.html").stat().st_size


def test_two_runs_are_told_with_the_step_where_they_part(logs, tmp_path):
    result = rlt_audit(logs("busy"), "--against", logs("fewer"), "-o", tmp_path / "r.html")
    assert result.exit_code == 0
    step = audit.diff(logs("busy"), logs("fewer")).first.step
    assert result.stdout.splitlines()[2] == f"they part in step {step}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--run", 7), "there is no run 7; its runs: 1"),
        (("--against", "busy"), "A and B are the same run; name two with --run and --run-b"),
        (("--against", "small"), "give two runs of one workload, or compare them --anyway"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(options, sentence, logs, tmp_path):
    name, value = options
    value = str(logs(value)) if name == "--against" else value
    result = rlt_audit(logs("busy"), "-o", tmp_path / "r.html", name, value)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert sentence in line
    assert not (tmp_path / "r.html").exists()


def test_a_place_that_cannot_be_written_is_told(logs, tmp_path):
    result = rlt_audit(logs("small"), "-o", tmp_path / "none" / "r.html")
    assert result.exit_code == 2
    assert "cannot be written (No such file or directory): give another path" in result.stderr


def test_a_report_never_takes_the_place_of_a_log(logs):
    before = logs("small").read_bytes()
    for arguments in ((logs("small"),), (logs("busy"), "--against", logs("small"))):
        result = rlt_audit(*arguments, "-o", logs("small"))
        assert result.exit_code == 2
        assert "this is the log itself" in result.stderr
    assert logs("small").read_bytes() == before


def test_the_log_is_not_written_to(logs, tmp_path):
    before = logs("small").read_bytes()
    assert rlt_audit(logs("small"), "-o", tmp_path / "r.html").exit_code == 0
    assert logs("small").read_bytes() == before


def test_the_size_follows_the_events(reports, logs):
    with sqlite3.connect(logs("large")) as db:
        ((events,),) = db.execute("select last_seq from run").fetchall()
    db.close()
    assert events > 40_000
    # A page of no events has 90 kB of styles and scripts; 1.5 million events must stay below 20 MB.
    assert reports("large").stat().st_size < 120_000 + 10 * events


@pytest.mark.parametrize("seed", range(8))
def test_a_corrupted_log_is_shown_all_the_same(seed, tmp_path):
    scene = mutations.SCENES[seed % len(mutations.SCENES)]
    path = mutations.corrupted(scene, seed, tmp_path).path
    assert "<!doctype html>" in render([run_view(path, None)])


def test_rows_that_cannot_be_read_leave_the_rest(tmp_path, logs):
    path = tmp_path / "garbled.db"
    path.write_bytes(logs("small").read_bytes())
    log, random = Tampered(path), Random(1)
    for event in random.sample(log.events[1:], 40):
        name = random.choice(["a", "b", "c", "e", "ref", "ticket", "extra"])
        setattr(event, name, random.choice([None, 2**62, -5]) if name != "extra" else "no JSON")
    view = run_view(log.write(), None)
    assert view.report.verdict == "findings"
    assert "could not be read: not shown below" in render([view])


def test_a_log_without_its_end_or_without_events_is_shown(tmp_path, logs):
    path = tmp_path / "cut.db"
    path.write_bytes(logs("small").read_bytes())
    log = Tampered(path)
    del log.events[30:]
    assert run_view(log.seal(), None).report.verdict == "inconclusive"
    log.events.clear()
    log.steps.clear()
    view = run_view(log.write(), None)
    assert view.sentence.startswith("it has no events")
    assert "<!doctype html>" in render([view])


def test_names_cannot_break_out_of_the_page(tmp_path):
    name = "</script><script>alert(1)</script><b>"
    with EventLog.open(tmp_path / "odd.db") as log, Engine(SimRunner(), log=log) as engine:
        engine.add_request(name, [1, 2], SamplingParams(max_tokens=1))
        while engine.has_unfinished_requests():
            engine.step()
    text = render([run_view(tmp_path / "odd.db", None)])
    assert "<script>alert" not in text
    assert "\\u003c/script>\\u003cscript>alert(1)" in text


def test_a_log_in_memory_can_be_shown():
    with EventLog.memory() as log:
        with Engine(SimRunner(), log=log) as engine:
            engine.add_request("a", [1, 2], SamplingParams(max_tokens=2))
            while engine.has_unfinished_requests():
                engine.step()
        assert run_view(log, None).report.verdict == "clean"


def test_importing_the_auditor_loads_no_template_engine():
    program = "import sys, audit, audit.cli; print({'jinja2', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (1234567, "1,234,567"), (2.0, "2"), (2.345, "2.35"), (23.45, "23.4"),
     (1234.5, "1,234")],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert number(value) == text
