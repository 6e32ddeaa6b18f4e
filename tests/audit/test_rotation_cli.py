"""`rlt-audit archive --into`, once and on and on."""

import json
import signal
from pathlib import Path

import pytest
from rotating import (
    command,
    parts_of,
    rotated,
    serving,
    spoil,
    whole_log,
)
from typer.testing import CliRunner

import audit
from audit.cli import app


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


def invoke(*words):
    return CliRunner().invoke(app, ["archive", *map(str, words)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_with_a_sentence_and_0_and_it_can_be_begun_again(
    path, folder, number
):
    with serving(path) as server:
        process = command(path, folder, "--every", "0.05")
        lines = [process.stdout.readline()]
        process.send_signal(number)
        rest, error = process.communicate()
        lines += rest.splitlines(keepends=True)
        assert (process.returncode, error) == (0, "")
        assert lines[0].startswith("run 1: seq 1 to ")
        assert lines[-1].startswith("stopped: ")
        again = command(path, folder, "--every", "0.05", "--json")
        first = json.loads(again.stdout.readline())
        assert first["first_seq"] > 1
        server.communicate("\n")
        rest, error = again.communicate()
    assert (again.returncode, error) == (0, "")
    assert json.loads(rest.splitlines()[-1])["ended"] == "over"
    assert audit.verify(parts_of(path, folder)).verdict == "clean"


def test_without_every_the_command_takes_what_is_old_once(path, folder):
    whole_log(path)
    done = invoke(path, "--into", folder, "--keep-events", 200)
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    assert line.endswith(" events stay")
    assert str(next(folder.iterdir())) in line
    again = invoke(path, "--into", folder, "--keep-events", 200)
    assert (again.exit_code, again.stdout) == (0, f"{path}: nothing is old enough to be taken\n")
    silent = invoke(path, "--into", folder, "--keep-events", 200, "--json")
    assert (silent.exit_code, silent.stdout) == (0, "")


def test_the_command_says_how_a_run_ended_that_nobody_goes_on_with(path, folder):
    with serving(path) as server:
        process = command(path, folder, "--every", "0.05", "--patience", "0.2")
        process.stdout.readline()
        server.kill()
        out, error = process.communicate()
    assert (process.returncode, error) == (3, "")
    assert "run 1 has no end and nobody writes it any more" in out.splitlines()[-1]


def test_the_command_says_what_is_not_clean_and_ends_with_1(path, folder):
    whole_log(path)
    spoil(path)
    for more in ((), ("--every", 1)):
        refused = invoke(path, "--into", folder, *more, "--keep-events", 100)
        assert refused.exit_code == 1
        assert "run 1 is not clean before step" in refused.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "give --before-step N, or --into DIR to take all but the newest events"),
        ("--every 3 --before-step 4 -o x", "--every goes with --into DIR"),
        ("--keep-events 3 --before-step 4 -o x", "--keep-events goes with --into DIR"),
        ("--into . --before-step 4", "--into DIR says itself which step and which archive"),
        ("--into . -o x", "--into DIR says itself which step and which archive"),
        ("--into . --discard", "--into DIR says itself which step and which archive"),
        ("--into . --patience 3", "--patience goes with --every S"),
        ("--into nowhere", "nowhere: there is no such folder: make it first"),
        ("--into . --keep-events 0", "'--keep-events': Input should be greater than or equal to 1"),
        ("--int . --every 3", "no such option --int: did you mean"),
    ],
)
def test_what_does_not_go_together_is_told_in_a_sentence(path, words, sentence):
    whole_log(path)
    refused = invoke(path, *words.split())
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_name_may_be_anything(tmp_path, folder):
    path = Path(tmp_path / "a [b] (c).run-0001.db")
    whole_log(path)
    assert rotated(path, folder).archives == 1
    assert audit.verify(parts_of(path, folder)).verdict == "clean"
