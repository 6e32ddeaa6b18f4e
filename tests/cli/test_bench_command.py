"""`rlt-fsm bench` on a small model: its arms, its self-checks, its JSON and its mistakes."""

import json

import pytest
import torch
from typer.testing import CliRunner

from rlt_fsm.log import EventLog
from runner.cli import app

SMALL = ["bench", "--model", "tiny", "--device", "cpu", "--shape", "tiny", "--width", "2",
         "--repeats", "1", "--requests", "3"]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def bench(*options):
    return CliRunner().invoke(app, [*SMALL, *options])


def test_every_arm_serves_the_same_requests_and_its_log_is_clean(tmp_path):
    path = tmp_path / "bench.json"
    arms = ["eager", "full", "adaptive", "full-sync", "no-refill", "log-off"]
    ran = bench("--json", "--out", str(path), *(f"--arm={arm}" for arm in arms))
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert result == json.loads(path.read_text(encoding="utf-8"))
    assert [line["arm"] for line in result["arms"]] == arms
    assert len({line["tokens"] for line in result["arms"]}) == 1
    assert all(line["problems"] == [] for line in result["arms"])
    for line in result["arms"]:
        has_log = line["arm"] not in {"eager", "log-off"}
        assert (line["log_seconds"] is not None) == has_log
        assert not has_log or 0 < line["log_seconds"] < line["seconds"]


def test_the_table_has_a_row_for_each_arm():
    ran = bench("--arm", "full", "--arm", "adaptive")
    assert ran.exit_code == 0, ran.output
    assert "self-checks: all well" in ran.stdout
    assert [line.split("|")[3].strip() for line in ran.stdout.splitlines() if "tiny |" in line] == [
        *("full", "adaptive")
    ]


def test_no_run_begins_after_its_seconds():
    ran = bench("--json", "--arm=full", "--seconds=0")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["arms"] == []


def test_logs_lie_where_they_are_asked_to(tmp_path, monkeypatch):
    opened = []
    real = EventLog.open

    def noting(path, **options):
        opened.append(path)
        return real(path, **options)

    monkeypatch.setattr(EventLog, "open", noting)
    assert bench("--arm=full", "--log-in", str(tmp_path)).exit_code == 0
    assert [path.is_relative_to(tmp_path) for path in opened] == [True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--arm", "fast"], "--arm fast: must be one of eager, graphed, full"),
        (["--shape", "9/9"], "--shape 9/9: must be one of 512/128"),
        (["--arm", "graphed"], "--arm graphed needs a CUDA device"),
        (["--log-in", "nowhere"], "--log-in nowhere: there is no such folder"),
        (["--log-in", "/proc"], "--log-in /proc: no log can be written there"),
        (["--out", "nowhere/a.json"], "--out nowhere/a.json: its folder does not exist"),
        (["--arm", "full", "--seconds", "0.001", "--out", "/"], "--out /: it cannot be written"),
        (["--requests", "0"], "--requests and --in-flight must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(options, sentence):
    ran = bench(*options)
    assert ran.exit_code == 2
    assert sentence in ran.stderr
