"""Status 1 is an answer: output that cannot be written, or is not wanted, never ends with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOAD = '{"format": "rlt-workload/1", "requests": [{"id": "a", "prompt_len": 3}]}'
RUN = "from runner.cli import main; main()"
AUDIT = "from audit.cli import main; main()"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A clean log, beside the workload `w.json` that made it."""
    (tmp_path / "w.json").write_text(WORKLOAD)
    done = command(RUN, "run", "--workload", "w.json", "--db", "r.db", cwd=tmp_path)
    assert done.returncode == 0
    return tmp_path / "r.db"


def command(
    code: str, *arguments: str, cwd: Path, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        check=False,
    )


COMMANDS = [
    (RUN, ["run", "--workload", "w.json", "--db", "other.db"]),
    (RUN, ["run", "--workload", "w.json", "--db", "other.db", "--json"]),
    (AUDIT, ["verify", "r.db"]),
    (AUDIT, ["verify", "r.db", "--json"]),
    (AUDIT, ["timeline", "r.db", "--request", "a"]),
]


@pytest.mark.parametrize(("code", "arguments"), COMMANDS)
def test_results_that_a_full_disk_cannot_take_are_one_sentence_and_status_2(
    log: Path, code: str, arguments: list[str]
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = command(code, *arguments, cwd=log.parent, stdout=full)
    finally:
        os.close(full)
    sentence = "error: the result cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.mark.parametrize(("code", "arguments"), COMMANDS)
def test_a_reader_that_goes_away_ends_a_command_quietly_and_not_with_a_no(
    log: Path, code: str, arguments: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command(code, *arguments, cwd=log.parent, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("code", "arguments"), COMMANDS)
def test_a_command_whose_stderr_is_closed_answers_all_the_same(
    log: Path, code: str, arguments: list[str]
) -> None:
    closed = f'exec "{sys.executable}" -c "$0" "$@" 2>&-'
    done = subprocess.run(
        ["bash", "-c", closed, code, *arguments],
        cwd=log.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("arguments", [["verify", "."], ["watch", "."], ["state", "."]])
def test_a_folder_is_no_log(log: Path, arguments: list[str]) -> None:
    done = command(AUDIT, *arguments, cwd=log.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: .: this is a folder: give the path of a log file\n"


def test_a_log_in_memory_is_refused_before_anything_runs(log: Path) -> None:
    done = command(RUN, "run", "--workload", "w.json", "--db", ":memory:", cwd=log.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --db :memory: ")
