"""`rlt-audit state`, `timeline` and `explain`: what they print, and their exit status."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from reseal import Tampered
from typer.testing import CliRunner, Result

from audit.cli import app
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

QUESTIONS = [
    ("state",),
    ("state", "--seq", 3),
    ("timeline", "--request", "a"),
    ("explain", "--request", "a"),
    ("explain", "--request", "a", "--step", 1),
]


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three requests and one slot; the run is closed while two are alive."""
    path = tmp_path_factory.mktemp("crowded") / "run.db"
    config = {"scheduler": {"max_num_seqs": 1}, "cache": {"num_blocks": 24, "block_size": 2}}
    with EventLog.open(path) as log, Engine(SimRunner(), from_mapping(config), log) as engine:
        for name in ("a", "b", "odd\nid"):
            engine.add_request(name, [7, 7, 7], SamplingParams(max_tokens=2))
        for _ in range(9):
            engine.step()
    return path


def test_state_shows_queues_slots_blocks_and_requests(crowded: Path) -> None:
    result = rlt_audit("state", crowded, "--step", 2)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:8] == [
        "run 1 after seq 23, step 2",
        "",
        "requests  3 submitted, 0 refused, 0 retired, 3 alive",
        "slots     1 of 1 held: a",
        "blocks    8 of 24 referenced, 16 free, 0 kept by the prefix cache alone; 0 on the host",
        "waiting   2, the best first: b and odd\\nid",
        "queued    DECODE_RECURRENT: a",
        "",
    ]
    table = [line.split() for line in lines[8:]]
    names = "request status work row kv blocks prefill outputs since"
    assert table[0] == names.split()
    assert table[1] == [
        "a",
        "ACTIVE",
        "QUEUED:DECODE_RECURRENT",
        "0",
        "RESIDENT",
        "8",
        "3/3",
        "1/2",
        "step",
        "2",
    ]
    passed_over = "step 0 no slot was free and nobody less urgent held one"
    assert table[2] == f"b WAITING IDLE NONE 0 0/3 0/2 {passed_over}".split()
    assert table[3][0] == "odd\\nid"


def test_state_shows_the_batch_that_is_on_its_way(crowded: Path) -> None:
    for seq, ticket in ((8, "being built"), (9, "SUBMITTED, PROMPT_ATOMIC")):
        shown = rlt_audit("state", crowded, "--seq", seq).stdout
        assert f"ticket    0 ({ticket}): a" in shown


def test_state_without_a_place_is_the_end(crowded: Path) -> None:
    lines = rlt_audit("state", crowded).stdout.splitlines()
    assert lines[0].endswith(": closed, closed")
    assert lines[2] == "requests  3 submitted, 0 refused, 3 retired, 0 alive"
    assert lines[5] == "waiting   nobody"
    assert len(lines) == 6


def test_state_as_json_has_everything(crowded: Path) -> None:
    state = json.loads(rlt_audit("state", crowded, "--step", 2, "--json").stdout)
    assert (state["run_id"], state["seq"], state["step"]) == (1, 23, 2)
    assert state["waiting"] == ["b", "odd\nid"]
    assert state["queues"]["DECODE_RECURRENT"] == ["a"]
    assert state["blocks"]["free"] == list(range(8, 24))
    (a, b, _) = state["requests"]
    assert a["token_ids"]
    assert a["block_table"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert b["verdict"] == {"seq": 6, "step": 0, "reason": "no-slot"}


def test_state_tells_what_it_could_not_follow(tampered: Tampered) -> None:
    tampered.all("select")[0].ref = 5
    result = rlt_audit("state", tampered.seal())
    assert result.exit_code == 0
    assert "note: seq " in result.stdout
    assert "is not there; what follows of it is passed over" in result.stdout


def test_timeline_has_a_line_for_each_event(crowded: Path) -> None:
    result = rlt_audit("timeline", crowded, "--request", "b")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("request b in run 1: ")
    assert lines[0].endswith("waited 8 steps in all")
    assert lines[2].split() == ["seq", "step", "waited", "what", "moved"]
    assert "8 steps  admitted, state row 0, 8 blocks taken" in lines[5]
    entries = json.loads(rlt_audit("timeline", crowded, "--request", "b", "--json").stdout)
    assert len(entries["entries"]) == len(lines) - 3


def test_a_name_with_a_line_break_stays_on_its_line(crowded: Path) -> None:
    lines = rlt_audit("timeline", crowded, "--request", "odd\nid").stdout.splitlines()
    assert lines[0].startswith("request odd\\nid in run 1: 4 events")
    assert len(lines) == 7


def test_explain_prints_one_sentence_a_line(crowded: Path) -> None:
    result = rlt_audit("explain", crowded, "--request", "b", "--step", 1)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "b did not run in step 1: it was WAITING since step 0."
    answer = json.loads(
        rlt_audit("explain", crowded, "--request", "b", "--step", 1, "--json").stdout
    )
    assert answer["sentences"] == lines
    assert answer["ran"] is False


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("state", "--seq", 99999), "there is no seq 99999"),
        (("state", "--step", 99999), "there is no step 99999"),
        (("state", "--seq", 1, "--step", 1), "--seq and --step both name a place"),
        (("state", "--run", 7), "there is no run 7; its runs: 1"),
        (("timeline", "--request", "aa"), "run 1 has no request 'aa': did you mean a?"),
        (("explain", "--request", "B"), "run 1 has no request 'B': did you mean b?"),
        (("explain", "--request", "b", "--step", 99999), "there is no step 99999"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    arguments: tuple[object, ...], sentence: str, crowded: Path
) -> None:
    result = rlt_audit(arguments[0], crowded, *arguments[1:])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_cannot_be_read_is_one_sentence_and_status_2(
    question: tuple[object, ...], tmp_path: Path, crowded: Path
) -> None:
    text, empty, newer = tmp_path / "t.db", tmp_path / "e.db", tmp_path / "n.db"
    text.write_text("this is no database, however long it goes on " * 100)
    EventLog.open(empty).close()
    newer.write_bytes(crowded.read_bytes())
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    for path, sentence in (
        (text, "not an event log"),
        (empty, "the log has no runs"),
        (newer, "schema version 99"),
        (tmp_path / "none.db", "there is no such file"),
    ):
        result = rlt_audit(question[0], path, *question[1:])
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert sentence in line
        assert str(path) in line


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_damaged_page_is_told_and_never_taken_for_the_end(
    question: tuple[object, ...], tmp_path: Path, crowded: Path
) -> None:
    broken = tmp_path / "broken.db"
    pages = bytearray(crowded.read_bytes())
    with sqlite3.connect(crowded) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event_log'")
        ((size,),) = db.execute("PRAGMA page_size")
    pages[(root - 1) * size : (root - 1) * size + 8] = b"\xff" * 8
    broken.write_bytes(pages)
    result = rlt_audit(question[0], broken, *question[1:])
    assert result.exit_code == 2
    assert "the file is damaged" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_unfinished_log_is_answered_as_far_as_it_goes(
    question: tuple[object, ...], tampered: Tampered
) -> None:
    del tampered.events[40:]
    before = tampered.seal().read_bytes()
    result = rlt_audit(question[0], tampered.path, *question[1:])
    assert result.exit_code == 0
    assert tampered.path.read_bytes() == before


@pytest.mark.parametrize("command", ["state", "timeline", "explain"])
def test_help_has_an_example(command: str) -> None:
    result = rlt_audit(command, "--help")
    assert result.exit_code == 0
    assert f"Example: rlt-audit {command} run.db" in result.stdout
