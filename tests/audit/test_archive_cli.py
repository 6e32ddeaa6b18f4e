"""`rlt-audit archive` and `rlt-audit join`."""

import json
import shutil

import pytest
from recovery.scenes import whole_run
from typer.testing import CliRunner

import audit
from audit.cli import app
from audit.reader import open_log
from rlt_fsm import EventLog


@pytest.fixture
def log_path(tmp_path):
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        whole_run("preempting", log)
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_archive_tells_what_it_took_and_verify_what_it_did_not_read(log_path, tmp_path):
    into = tmp_path / "run.0001.db"
    done = invoke("archive", log_path, "--before-step", 20, "-o", into)
    assert done.exit_code == 0, done.output
    assert "seq 1 to" in done.stdout
    rest = invoke("verify", log_path)
    assert rest.exit_code == 0
    assert "note: run 1: steps 0 to 19 (seq 1 to" in rest.stdout
    assert "are in run.0001.db: what they led to is taken on trust" in rest.stdout
    joined = invoke("verify", into, log_path)
    assert joined.exit_code == 0
    assert "note" not in joined.stdout
    assert invoke("verify", into).exit_code == 3


def test_archive_as_json_and_a_second_one(log_path, tmp_path):
    first = json.loads(
        invoke("archive", log_path, "--before-step", 10, "-o", tmp_path / "1.db", "--json").stdout
    )
    second = json.loads(
        invoke("archive", log_path, "--before-step", 30, "-o", tmp_path / "2.db", "--json").stdout
    )
    assert first["first_seq"] == 1
    assert first["last_step"] == 9
    assert second["first_seq"] == first["last_seq"] + 1
    assert second["archive"] == str(tmp_path / "2.db")


def test_discarded_events_are_gone_and_the_rest_is_clean(log_path):
    assert "now deleted" in invoke("archive", log_path, "--before-step", 20, "--discard").stdout
    report = audit.verify(log_path)
    assert report.verdict == "clean"
    assert "no file any more" in report.runs[0].trusted


def test_archive_wants_a_place_or_to_be_told_that_there_is_none(log_path):
    for options in ((), ("-o", "x.db", "--discard")):
        refused = invoke("archive", log_path, "--before-step", 20, *options)
        assert refused.exit_code == 2
        assert "give -o ARCHIVE, or --discard" in refused.stderr


def test_a_step_that_is_not_there_is_told(log_path, tmp_path):
    refused = invoke("archive", log_path, "--before-step", 9999, "-o", tmp_path / "1.db")
    assert refused.exit_code == 2
    assert "has no step 9999 that has ended" in refused.stderr


def test_commands_that_need_a_whole_run_say_how_to_get_one(log_path, tmp_path):
    whole = tmp_path / "before.db"
    shutil.copy(log_path, whole)
    parts = [tmp_path / "1.db", tmp_path / "2.db"]
    for before_step, part in zip((10, 30), parts, strict=True):
        invoke("archive", log_path, "--before-step", before_step, "-o", part)
    refused = invoke("state", log_path, "--step", 40)
    assert refused.exit_code == 2
    assert "put its parts together (`rlt-audit join`)" in refused.stderr
    missing = invoke("join", parts[1], log_path, "-o", tmp_path / "not.db")
    assert missing.exit_code == 2
    assert "give 1.db first" in missing.stderr
    joined = tmp_path / "joined.db"
    done = invoke("join", *parts, log_path, "-o", joined)
    assert done.exit_code == 0, done.output
    assert invoke("diff", whole, joined, "--level", "events").exit_code == 0
    with open_log(whole) as one, open_log(joined) as other:
        assert list(one.run(1).events()) == list(other.run(1).events())
        assert list(one.run(1).steps()) == list(other.run(1).steps())
        assert one.runs() == other.runs()
    assert invoke("state", joined, "--step", 5).exit_code == 0
