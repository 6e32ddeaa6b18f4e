"""`rlt-audit compare`: two revisions of a small repository that holds copies of the packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
from small_repository import DECODE_FIRST, assert_tidy, git, make_repository, the_command

import audit
from audit.compare import compare, workload_files
from rlt_fsm.errors import RltError

STOPS = """

def _stop(self, batch, result):
    raise AssertionError("this revision stops at its first batch")


Interpreter.complete = _stop
"""
WORKLOAD = {
    "format": "rlt-workload/1",
    "max_model_len": 64,
    "config": {"scheduler": {"max_num_seqs": 2}},
    "requests": [
        {"id": "a", "at": 0, "prompt_len": 9, "max_tokens": 4},
        {"id": "b", "at": 2, "prompt_len": 5, "max_tokens": 6},
        {"id": "c", "at": 2, "prompt_len": 7, "max_tokens": 2},
    ],
}
ALONE = {**WORKLOAD, "requests": WORKLOAD["requests"][:1]}
ENDLESS = {
    **WORKLOAD,
    "max_model_len": 4096,
    "requests": [
        {"id": f"r{i}", "prompt_len": 9, "max_tokens": 4000, "params": {"ignore_eos": True}}
        for i in range(8)
    ],
}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repo")
    make_repository(folder)
    return folder


@pytest.fixture
def workloads(tmp_path: Path) -> Path:
    folder = tmp_path / "workloads"
    folder.mkdir()
    (folder / "crowded.json").write_text(json.dumps(WORKLOAD))
    (folder / "alone.json").write_text(json.dumps(ALONE))
    return folder


@pytest.fixture
def rlt_audit(tmp_path: Path, repo: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in the repository, from a file elsewhere so that it runs today's auditor."""
    script = the_command(tmp_path)

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), *map(str, arguments)]
        return subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)

    return call


# ---- answers -----------------------------------------------------------------------------------


def test_another_rule_is_found_with_the_step_and_both_reasons(
    rlt_audit: Callable[..., subprocess.CompletedProcess[str]], repo: Path, workloads: Path
) -> None:
    file = workloads / "crowded.json"
    ask = ("compare", "--base", "base", "--head", "rule", "--level", "schedule")
    done = rlt_audit(*ask, "--workload", file)
    assert (done.returncode, done.stderr) == (1, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == f"base base {git(repo, 'rev-parse', 'base')[:12]}"
    assert "same outputs, other schedule" in lines
    assert any("(prompt-ready)" in line and "`decode-first`" in line for line in lines)
    assert "summary A B change" in lines
    assert_tidy(repo)


def test_a_folder_of_workloads_gives_one_table(
    rlt_audit: Callable[..., subprocess.CompletedProcess[str]], repo: Path, workloads: Path
) -> None:
    (workloads / "tomorrow.json").write_text(json.dumps({**WORKLOAD, "key_of_tomorrow": 1}))
    done = rlt_audit(
        "compare", "--base", "base", "--head", "rule", "--level", "schedule",
        "--workload", workloads,
    )  # fmt: skip
    assert done.returncode == 1
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[3:8] if line.strip()}
    assert list(rows) == ["workload", "alone.json", "crowded.json", "tomorrow.json"]
    assert "identical" not in rows["crowded.json"]
    assert "same outputs, other schedule" in rows["crowded.json"]
    assert "uncompared" in rows["tomorrow.json"]
    assert "neither can run it: " in rows["tomorrow.json"]
    assert "key_of_tomorrow" in rows["tomorrow.json"]
    assert done.stdout.splitlines()[-1].startswith("3 workloads: ")
    assert_tidy(repo)


def test_revisions_that_do_the_same_are_identical(repo: Path, workloads: Path) -> None:
    answer = compare("base", "comment", [workloads], repo=repo)
    assert answer.outcome == "same"
    for one in answer.compared:
        assert one.diff is not None
        assert one.diff.verdict == "identical"
        assert one.diff.a.digest == one.diff.b.digest
        assert one.diff.a.revision == git(repo, "rev-parse", "base")
        assert one.diff.b.revision == git(repo, "rev-parse", "comment")
    assert_tidy(repo)


def test_the_working_tree_is_compared_as_it_is(repo: Path, workloads: Path) -> None:
    policy = repo / "rlt_fsm/policies/refill.py"
    before = policy.read_text()
    git(repo, "checkout", "--quiet", "base")
    try:
        usual = policy.read_text()
        policy.write_text(usual + DECODE_FIRST)
        answer = compare("base", ".", [workloads / "crowded.json"], repo=repo, level="schedule")
        assert answer.outcome == "different"
        policy.write_text(usual)
    finally:
        git(repo, "checkout", "--quiet", "late")
    assert policy.read_text() == before
    assert_tidy(repo)


def test_logs_are_kept_where_one_asks(repo: Path, workloads: Path, tmp_path: Path) -> None:
    compare("base", "rule", [workloads / "crowded.json"], repo=repo, keep=tmp_path / "logs")
    kept = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert kept == ["crowded.base.db", "crowded.head.db"]
    logs = tmp_path / "logs"
    assert audit.diff(logs / "crowded.base.db", logs / "crowded.head.db").verdict == "same-outputs"


def test_a_revision_that_breaks_off_is_different(repo: Path, workloads: Path) -> None:
    interpret = repo / "rlt_fsm/interpret.py"
    git(repo, "checkout", "--quiet", "base")
    interpret.write_text(interpret.read_text() + STOPS)
    try:
        answer = compare("base", ".", [workloads / "crowded.json"], repo=repo)
    finally:
        git(repo, "checkout", "--quiet", "--force", "late")
    assert answer.outcome == "different"
    (one,) = answer.compared
    assert (one.base.end, one.head.end) == ("ran", "stopped")
    assert one.head.message == "AssertionError: this revision stops at its first batch"
    assert_tidy(repo)


# ---- bisect, interrupts, failures --------------------------------------------------------------


@pytest.mark.slow
def test_git_bisect_names_the_commit_and_skips_what_cannot_run(
    repo: Path, workloads: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(repo, "clone", "--quiet", str(repo), str(clone))
    git(clone, "bisect", "start", "late", "base")
    script = the_command(tmp_path)
    found = git(
        clone, "bisect", "run", sys.executable, str(script), "compare", "--base", "base",
        "--workload", str(workloads / "crowded.json"), "--bisect",
    )  # fmt: skip
    assert f"{git(repo, 'rev-parse', 'rule')} is the first bad commit" in found
    assert f"skip {git(repo, 'rev-parse', 'broken')}" in git(clone, "bisect", "log")
    assert_tidy(clone)


def test_a_head_that_cannot_run_is_status_2_and_skipped_in_bisect(
    rlt_audit: Callable[..., subprocess.CompletedProcess[str]], repo: Path, workloads: Path
) -> None:
    ask = ("compare", "--base", "base", "--head", "broken", "--workload", workloads)
    done = rlt_audit(*ask)
    assert done.returncode == 2
    assert "head cannot run it: SyntaxError" in done.stdout
    assert rlt_audit(*ask, "--bisect").returncode == 125
    assert_tidy(repo)


def _heeding_interrupts() -> None:
    """As a command in the foreground: one that a shell put in the background ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_worktree_and_no_process(
    number: signal.Signals, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "endless.json").write_text(json.dumps(ENDLESS))
    (tmp_path / "tmp").mkdir()
    command = ["compare", "--base", "base", "--head", "rule"]
    process = subprocess.Popen(
        [sys.executable, str(the_command(tmp_path)), *command,
         "--workload", str(tmp_path / "endless.json")],
        cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        preexec_fn=_heeding_interrupts,  # noqa: PLW1509  # no thread runs here
    )  # fmt: skip
    for _ in range(600):
        if len(list((tmp_path / "tmp").glob("*/*.head.db"))) == 1:
            break
        assert process.poll() is None, process.communicate()
        sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted: the worktrees are removed\n")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert_tidy(repo)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--base", "nobody"), "there is no revision 'nobody'"),
        (("--base", "--force"), "there is no revision '--force'"),
        (("--base", "base", "--head", "v9"), "there is no revision 'v9'"),
        (("--base", "base", "--repo", ".."), "not a repository"),
        (("--base", "base", "--repo", "nowhere"), "nowhere: there is no such folder"),
        (("--base", "base", "nothing.json"), "nothing.json: there is no such file or folder"),
        (("--base", "base", ".git/refs/heads"), "the folder has no .json file"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    options: tuple[str, ...],
    sentence: str,
    rlt_audit: Callable[..., subprocess.CompletedProcess[str]],
    repo: Path,
    workloads: Path,
) -> None:
    done = rlt_audit("compare", "--workload", workloads, *options)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line
    assert_tidy(repo)


def test_files_and_folders_are_taken_once_and_in_order(workloads: Path) -> None:
    alone, crowded = workloads / "alone.json", workloads / "crowded.json"
    assert workload_files([crowded, workloads]) == [crowded.resolve(), alone.resolve()]
    with pytest.raises(RltError, match="no workload is given"):
        workload_files([])


def test_help_has_an_example(
    rlt_audit: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert "Example: rlt-audit compare --base main" in rlt_audit("compare", "--help").stdout
