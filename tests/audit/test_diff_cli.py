"""`rlt-audit diff`: what it prints, and its exit status."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from preempting_runs import Arrival, run_to_file
from reseal import Tampered
from typer.testing import CliRunner, Result

from audit.cli import app
from rlt_fsm import EventLog

ARRIVALS = [Arrival(0, "a", 9, 4), Arrival(2, "odd\nid", 5, 6), Arrival(2, "c", 7, 2)]


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One log, two runs of one workload with another share of prompts."""
    path = tmp_path_factory.mktemp("two") / "two.db"
    run_to_file(path, ARRIVALS, scheduler={"max_num_seqs": 2})
    share = {"max_prefill_batches_before_decode": 2, "max_num_seqs": 2}
    run_to_file(path, ARRIVALS, scheduler=share)
    return path


@pytest.fixture
def sides(two: Path) -> tuple[object, ...]:
    return (two, two, "--run-a", 1, "--run-b", 2)


def test_the_answer_has_place_choices_states_and_numbers(sides: tuple[object, ...]) -> None:
    result = rlt_audit("diff", *sides, "--level", "schedule")
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for line in (
        "same outputs, other schedule",
        "scheduler.max_prefill_batches_before_decode 1 2",
        "first difference (schedule): step 3, request odd\\nid",
        "chose batch DECODE_RECURRENT (1 row, 1 token) PROMPT_ATOMIC (1 row, 5 tokens)",
        "chose passed over c (no-slot)",
        "before slots 1 of 2: a 1 of 2: a",
        "after slots 1 of 2: a 2 of 2: a and odd\\nid",
        "summary A B change",
        "batches 45 38 -7",
        "odd\\nid 11 4 -7",
    ):
        assert line in lines
    assert any(
        line.startswith("A: odd\\nid did not run in step 3: it was WAITING") for line in lines
    )


def test_the_same_as_json(sides: tuple[object, ...]) -> None:
    result = rlt_audit("diff", *sides, "--level", "schedule", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["verdict"] == "same-outputs"
    assert answer["same"] == {"outputs": True, "schedule": False, "events": False}
    assert answer["first"]["step"] == 3
    assert answer["first"]["a"]["chose"]["reason"] == "decode-due"
    assert answer["first"]["a"]["before"]["waiting"] == ["odd\nid", "c"]
    assert answer["summary"]["waits"][0] == {"request": "odd\nid", "a": 11, "b": 4}


@pytest.mark.parametrize(("level", "status"), [("events", 1), ("schedule", 1), ("outputs", 0)])
def test_the_level_decides_the_status(level: str, status: int, sides: tuple[object, ...]) -> None:
    assert rlt_audit("diff", *sides, "--level", level).exit_code == status


def test_identical_runs_are_said_to_be(two: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.db"
    run_to_file(again, ARRIVALS, scheduler={"max_num_seqs": 2})
    for options in ((), ("--every-event",), ("--first",)):
        result = rlt_audit("diff", two, again, "--run-a", 1, *options)
        assert result.exit_code == 0
        assert ("identical" in result.stdout) != ("no event differs" in result.stdout)


def test_only_the_first_difference_can_be_had(sides: tuple[object, ...]) -> None:
    result = rlt_audit("diff", *sides, "--first")
    assert result.exit_code == 1
    assert result.stdout.startswith("first difference (events): step 3, request a")
    assert "summary" not in result.stdout
    found = json.loads(rlt_audit("diff", *sides, "--first", "--json").stdout)
    assert found["first"]["step"] == 3


def test_a_log_that_is_cut_off_is_status_3(tampered: Tampered, real_log: Path) -> None:
    del tampered.events[50:]
    for options in ((), ("--first",)):
        result = rlt_audit("diff", real_log, tampered.seal(), *options)
        assert result.exit_code == 3
    shown = rlt_audit("diff", real_log, tampered.path).stdout
    assert "inconclusive: no difference as far as both logs go (B has no end)" in shown


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "A and B are the same run; name two with --run-a and --run-b"),
        (("--run-a", 7), "there is no run 7; its runs: 1, 2"),
        (("--run-b", 0), "there is no run 0; its runs: 1, 2"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    options: tuple[object, ...], sentence: str, two: Path
) -> None:
    result = rlt_audit("diff", two, two, *options)
    assert_one_sentence(result, sentence)


def assert_one_sentence(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_other_workloads_and_what_cannot_be_read_are_one_sentence(
    two: Path, real_log: Path, tmp_path: Path
) -> None:
    assert_one_sentence(rlt_audit("diff", two, real_log), "runs of different workloads")
    assert rlt_audit("diff", two, real_log, "--anyway").exit_code == 1
    text, empty, newer = tmp_path / "t.db", tmp_path / "e.db", tmp_path / "n.db"
    text.write_text("this is no database, however long it goes on " * 100)
    EventLog.open(empty).close()
    newer.write_bytes(two.read_bytes())
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    for path, sentence in (
        (text, "not an event log"),
        (empty, "the log has no runs"),
        (newer, "schema version 99"),
        (tmp_path / "none.db", "there is no such file"),
    ):
        for sides in ((path, two), (two, path)):
            assert_one_sentence(rlt_audit("diff", *sides), sentence)


def test_a_damaged_page_is_never_taken_for_the_end(two: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    pages = bytearray(two.read_bytes())
    with sqlite3.connect(two) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event_log'")
        ((size,),) = db.execute("PRAGMA page_size")
    pages[(root - 1) * size : (root - 1) * size + 8] = b"\xff" * 8
    broken.write_bytes(pages)
    assert_one_sentence(rlt_audit("diff", two, broken), "the file is damaged")


def test_help_has_an_example() -> None:
    assert "Example: rlt-audit diff before.db after.db" in rlt_audit("diff", "--help").stdout
