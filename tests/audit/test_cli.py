"""`rlt-audit verify`: what it prints, and its exit status."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from reseal import Tampered
from typer.testing import CliRunner, Result

from audit.cli import app
from rlt_fsm import EventLog


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_clean_log_exits_with_0_and_a_table(real_log: Path) -> None:
    result = rlt_audit("verify", real_log)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == str(real_log)
    assert lines[1].split() == ["run", "events", "steps", "requests", "seconds", "verdict"]
    assert lines[2].split()[:4] == ["1", "196", "26", "7"]
    assert lines[2].endswith("clean")
    assert lines[-1].startswith("clean (196 events in")
    assert result.stderr == ""


def test_one_edited_row_exits_with_1_and_says_where(tampered: Tampered) -> None:
    output = tampered.all("output")[1]
    output.a = 3
    result = rlt_audit("verify", tampered.seal())
    assert result.exit_code == 1
    assert f"S8   seq {output.seq}  step {output.step}  request b" in result.stdout
    assert "b has output 3 where output 0 is due." in result.stdout
    assert f"findings: S8 is the first, at seq {output.seq}" in result.stdout


def test_an_edit_that_was_not_sealed_exits_with_1_too(tampered: Tampered) -> None:
    tampered.all("output")[1].b += 1
    result = rlt_audit("verify", tampered.write())
    assert result.exit_code == 1
    assert "S13" in result.stdout


def test_a_log_without_its_end_exits_with_3(tampered: Tampered) -> None:
    tampered.events.pop()
    result = rlt_audit("verify", tampered.seal())
    assert result.exit_code == 3
    assert "inconclusive: it has no `close`" in result.stdout


def test_a_log_without_runs_exits_with_3(tmp_path: Path) -> None:
    EventLog.open(tmp_path / "new.db").close()
    result = rlt_audit("verify", tmp_path / "new.db")
    assert result.exit_code == 3
    assert "inconclusive: the log has no runs" in result.stdout


def test_json_is_the_report(tampered: Tampered) -> None:
    tampered.all("output")[1].a = 3
    result = rlt_audit("verify", tampered.seal(), "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["verdict"] == "findings"
    assert report["findings"][0]["invariant"] == "S8"
    assert report["findings"][0]["request_id"] == "b"
    assert report["runs"][0]["counts"]["S8"] >= 1


def test_one_run_can_be_named(real_log: Path) -> None:
    assert rlt_audit("verify", real_log, "--run", 1).exit_code == 0


def _text(path: Path) -> None:
    path.write_text("this is no database, however long it goes on " * 100)


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")


def _newer(path: Path) -> None:
    EventLog.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")


def _empty(path: Path) -> None:
    path.touch()


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (None, "there is no such file"),
        (_text, "not an event log"),
        (_other_database, "not an event log"),
        (_newer, "schema version 99"),
        (_empty, "not an event log"),
        (_folder, "folder"),
    ],
)
def test_what_cannot_be_read_exits_with_2_and_one_sentence(
    make: object, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.db"
    if callable(make):
        make(path)
    result = rlt_audit("verify", path)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert str(path) in line
    assert sentence in line


def test_a_run_that_is_not_there_exits_with_2(real_log: Path) -> None:
    result = rlt_audit("verify", real_log, "--run", 9)
    assert result.exit_code == 2
    assert "there is no run 9; its runs: 1" in result.stderr


@pytest.mark.parametrize("arguments", [("verify",), ("verify", "x", "--run", "y"), ("inspect",)])
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    result = rlt_audit(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("arguments", [("--help",), ("verify", "--help")])
def test_help_has_an_example(arguments: tuple[str, ...]) -> None:
    result = rlt_audit(*arguments)
    assert result.exit_code == 0
    assert "Example: rlt-audit verify run.db" in result.stdout


def test_the_console_script_reports_to_the_shell(real_log: Path, tampered: Tampered) -> None:
    tampered.all("output")[1].a = 3
    bad = tampered.seal()
    for path, status in ((real_log, 0), (bad, 1), (bad.with_name("none.db"), 2)):
        done = subprocess.run(
            [sys.executable, "-c", "from audit.cli import main; main()", "verify", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
