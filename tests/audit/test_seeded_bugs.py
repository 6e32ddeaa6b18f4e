"""Scheduler bugs on purpose: verify, diff, explain, compare and shrink find and name each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from seeded_bugs import BUGS, patched, seeded
from small_repository import assert_tidy, commit, git, make_repository
from typer.testing import CliRunner, Result

import audit
from audit.cli import app
from audit.compare import compare
from audit.explain import explain
from rlt_fsm import EventLog
from rlt_fsm.workload import parse
from runner.simulate_check import run_logged

TIGHT = {
    "format": "rlt-workload/1",
    "max_model_len": 64,
    "config": {
        "scheduler": {
            "policy": "priority", "enable_preemption": True, "max_num_seqs": 2,
            "max_num_batched_tokens": 6, "prefill_chunk_size": 4,
        },
        "cache": {"num_blocks": 32, "block_size": 2, "incremental_allocation": True},
    },
    "requests": [
        {"id": "a", "prompt_len": 5, "max_tokens": 4, "priority": 1},
        {"id": "b", "prompt_len": 6, "max_tokens": 5, "priority": 1},
        {"id": "c", "at": 1, "prompt_len": 7, "max_tokens": 4, "priority": 2},
        {"id": "d", "at": 4, "prompt_len": 5, "max_tokens": 3, "priority": 0},
        {"id": "e", "at": 6, "prompt_len": 4, "max_tokens": 6, "priority": 1},
        {"id": "f", "at": 9, "prompt_len": 6, "max_tokens": 3, "priority": 0},
    ],
    "expect": {"max_steps": 300},
}  # fmt: skip
ABORTED = {
    **TIGHT,
    "config": {"scheduler": {"max_num_seqs": 2}},
    "actions": [{"at": 6, "abort": "a"}],
}


class Case(NamedTuple):
    """A bug, a workload that shows it, and what each command must say of it."""

    bug: str
    workload: dict[str, object]
    finding: str
    message: str
    level: str  # on which its first difference tells most
    step: int
    does: str  # with the bug
    instead_of: str
    asked: str  # a request that pays for it
    because: str
    symptom: str
    left: int  # requests in the smallest workload


CASES = [
    Case(
        "no-order-no-progress", TIGHT, "S10",
        "`rewind` of a, although b, for whom it is, is worse", "events", 5,
        "b: lost its KV and 16 blocks for d, to be computed again: the host had no room for its KV",
        "b: gave 16 blocks up for d; its KV went to the host", "a",
        "a lost its KV and 12 blocks for f, to be computed again", "S10 at rewind", 2,
    ),
    Case(
        "wrong-place-in-line", TIGHT, "F1",
        "e is admitted before a, which is better, waits, and could have run", "schedule", 27,
        '"admitted":["e"]', '"resumed":["a"]', "a",
        "It waited longest to be admitted: 37 steps, from step 11 to step 48.", "F1 at admit", 3,
    ),
    Case(
        "slot-leaked-on-abort", ABORTED, "D1",
        "The run is closed with 1 slots held, 4 blocks referenced", "schedule", 6,
        '"reason":"decode-ready"', '"admitted":["c"]', "c",
        "All 2 slots were held, by a (since step 0) and b (since step 0).", "D1 at close", 1,
    ),
]  # fmt: skip
IDS = [case.bug for case in CASES]
each_bug = pytest.mark.parametrize("case", CASES, ids=IDS)


def rlt_audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(workload: dict[str, object], path: Path) -> Path:
    with EventLog.open(path) as log:
        stop = run_logged(parse(json.dumps(workload)), log, check=False)
    assert stop is None
    return path


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], tuple[Path, Path]]:
    """The logs of a case without and with its bug."""
    folder = tmp_path_factory.mktemp("logs")

    def make(case: Case) -> tuple[Path, Path]:
        good, bad = folder / f"{case.bug}.good.db", folder / f"{case.bug}.bad.db"
        if not good.exists():
            run(case.workload, good)
            with seeded(case.bug):
                run(case.workload, bad)
        return good, bad

    return make


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose `base` is right, with a commit for each bug."""
    folder = tmp_path_factory.mktemp("repo")
    make_repository(folder)
    for bug in BUGS:
        git(folder, "checkout", "--quiet", "base")
        patched(folder, bug)
        commit(folder, bug)
    return folder


def test_there_is_a_case_for_every_bug() -> None:
    assert {case.bug for case in CASES} == BUGS.keys()


@each_bug
def test_the_auditor_names_the_rule(case: Case, logs: Callable[[Case], tuple[Path, Path]]) -> None:
    good, bad = logs(case)
    assert audit.verify(good).ok
    first = audit.verify(bad).findings[0]
    assert first.invariant == case.finding
    assert case.message in first.message


@each_bug
def test_the_first_difference_is_what_the_bug_does(
    case: Case, logs: Callable[[Case], tuple[Path, Path]]
) -> None:
    result = rlt_audit("diff", *logs(case), "--level", case.level, "--json")
    assert result.exit_code == 1
    first = json.loads(result.stdout)["first"]
    assert first["step"] == case.step
    assert case.instead_of in told(first["a"])
    assert case.does in told(first["b"])


def told(side: dict[str, object]) -> str:
    """What a side did and chose, as one text."""
    return f"{side['what']} {json.dumps(side['chose'], separators=(',', ':'))}"


@each_bug
def test_who_pays_for_it_is_told_why(case: Case, logs: Callable[[Case], tuple[Path, Path]]) -> None:
    with audit.replay(logs(case)[1]) as opened:
        assert case.because in " ".join(explain(opened, case.asked).sentences)


@each_bug
def test_two_revisions_are_told_apart(case: Case, repo: Path, tmp_path: Path) -> None:
    file = tmp_path / "workload.json"
    file.write_text(json.dumps(case.workload))
    answer = compare("base", case.bug, [file], repo=repo, level=case.level)
    assert answer.outcome == "different"
    (one,) = answer.compared
    assert one.diff is not None
    first = msgspec.to_builtins(one.diff.first)
    assert first["step"] == case.step
    assert case.does in told(first["b"])
    assert_tidy(repo)


@pytest.mark.slow
@each_bug
def test_the_workload_shrinks_to_what_shows_the_bug(
    case: Case, logs: Callable[[Case], tuple[Path, Path]], tmp_path: Path
) -> None:
    small = tmp_path / "small.json"
    with seeded(case.bug):
        result = rlt_audit("shrink", logs(case)[1], "-o", small)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"kept: {case.symptom}"
    assert "nothing more can be removed or lowered" in result.stdout
    workload = json.loads(small.read_text())
    assert len(workload["requests"]) == case.left
    assert audit.verify(run(workload, tmp_path / "good.db")).ok
    with seeded(case.bug):
        found = audit.verify(run(workload, tmp_path / "bad.db")).findings
    assert case.finding in {finding.invariant for finding in found}


def test_without_the_bug_the_workload_is_not_the_one_to_shrink(
    logs: Callable[[Case], tuple[Path, Path]],
) -> None:
    result = rlt_audit("shrink", logs(CASES[0])[1])
    assert result.exit_code == 2
    sentence = "error: the workload, run again, does not show S10 at rewind; it shows nothing\n"
    assert result.stderr == sentence
