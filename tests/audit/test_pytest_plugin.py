"""`audit.pytest_plugin`: audited engines and golden digests, in a pytest of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKLOAD = {
    "format": "rlt-workload/1",
    "max_model_len": 64,
    "config": {"scheduler": {"max_num_seqs": 2}},
    "requests": [{"id": f"r{i}", "prompt_len": 3, "max_tokens": 4} for i in range(4)],
}
GOLDEN_TEST = """
from pathlib import Path

def test_it_runs_as_ever(golden_digest):
    golden_digest(Path(__file__).with_name("w.json"))
"""
CLEAN_TEST = """
from rlt_fsm import EngineConfig, SamplingParams

def test_two_engines(audited_engine):
    for config in (None, EngineConfig(), {"scheduler": {"max_num_seqs": 1}}):
        engine = audited_engine(config)
        engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=2))
        engine.step()
"""
LEAKING_TEST = """
from rlt_fsm import Engine, SamplingParams
from rlt_fsm.events import Aborted

def abort_and_keep(self, request):
    if request.status != "FINISHED":
        self._recorder.record(Aborted(request.ref))

def test_an_abort(audited_engine, monkeypatch):
    monkeypatch.setattr(Engine, "_abort", abort_and_keep)
    engine = audited_engine()
    engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=2))
    engine.step()
    engine.abort_request("a")
    engine.close()
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pytest_in(tmp_path: Path) -> Run:
    """Run pytest with the plugin on a test file with some text."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(text)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "audit.pytest_plugin"]
        return subprocess.run(
            [*command, "-p", "no:cacheprovider", *options],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    return run


def test_engines_with_clean_logs_pass(pytest_in: Run) -> None:
    done = pytest_in(CLEAN_TEST)
    assert done.returncode == 0, done.stdout


def test_a_finding_fails_the_test_and_is_named(pytest_in: Run) -> None:
    done = pytest_in(LEAKING_TEST)
    assert done.returncode == 1
    assert "engine-1.db: findings" in done.stdout
    assert "D1 seq " in done.stdout
    assert "The run is closed with 1 slots held" in done.stdout


def test_a_digest_is_kept_compared_and_told(pytest_in: Run, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(WORKLOAD))
    golden = tmp_path / "golden.json"
    assert pytest_in(GOLDEN_TEST, "--rlt-golden", "golden.json").returncode != 0
    assert not golden.exists()
    done = pytest_in(GOLDEN_TEST, "--rlt-golden", "golden.json", "--rlt-golden-update")
    assert done.returncode == 0, done.stdout
    kept = json.loads(golden.read_text())
    assert kept["format"] == "rlt-golden/1"
    assert list(kept["digests"]) == ["w.json"]
    assert pytest_in(GOLDEN_TEST, "--rlt-golden", "golden.json").returncode == 0

    (tmp_path / "w.json").write_text(json.dumps({**WORKLOAD, "seed": 4}))
    done = pytest_in(GOLDEN_TEST, "--rlt-golden", "golden.json")
    assert done.returncode == 1
    assert "w.json runs otherwise" in done.stdout
    assert kept["digests"]["w.json"] in done.stdout
    assert "rlt-audit compare --base REV --head . --workload" in done.stdout
    assert "pytest --rlt-golden golden.json --rlt-golden-update" in done.stdout
    assert json.loads(golden.read_text()) == kept


def test_a_golden_file_that_is_none_is_told(pytest_in: Run, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(WORKLOAD))
    (tmp_path / "golden.json").write_text("[]")
    done = pytest_in(GOLDEN_TEST, "--rlt-golden", "golden.json")
    assert done.returncode == 1
    assert "golden.json: no file of golden digests" in done.stdout
