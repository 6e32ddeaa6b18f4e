"""The workflow for pull requests does what its page says: its script, run as a job runs it."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from docs.generate.pasted import FILE, ROOT, fences

PAGE = ROOT / "docs" / "how-to" / "compare-revisions-in-ci.md"
WORKFLOW = FILE + ".github/workflows/schedule.yml"
FIRST_TURN = """        if view.ready(WorkKey.DECODE_PRELUDE):
            yield Turn((WorkKey.DECODE_PRELUDE,), "prelude-ready")
"""


def workflow() -> str:
    (text,) = [f.text for f in fences(PAGE.read_text(encoding="utf-8")) if f.mark == WORKFLOW]
    return text


def script() -> str:
    """The last step's commands, which Actions gives to `bash -e`."""
    (block,) = re.findall(r"^( +)run: \|\n((?:\1  .*\n)+)", workflow(), re.MULTILINE)
    return textwrap.dedent(block[1])


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, "-C", folder, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pull_request(tmp_path_factory):
    """A clone whose HEAD may differ from origin/main; a few workloads are enough."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    clone = tmp_path_factory.mktemp("job") / "clone"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
    data = clone / "tests" / "scenarios" / "data"
    kept = sorted(data.glob("*.json"))[:4]
    git(clone, "rm", "--quiet", *(str(p) for p in data.glob("*.json") if p not in kept))
    git(clone, "commit", "--quiet", "-m", "few workloads")
    git(clone, "update-ref", "refs/remotes/origin/main", "HEAD")
    return clone


def job(clone: Path, *, is_meant: bool) -> tuple[int, str]:
    """The exit status of the step, and the job's summary."""
    summary = clone / "summary.md"
    summary.write_text("")
    programs = clone / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "rlt-audit"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from audit.cli import main\nmain()\n"
    )
    program.chmod(0o700)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(summary),
        "IS_MEANT": "true" if is_meant else "false",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script()], cwd=clone, env=environment, capture_output=True, check=False
    )
    return done.returncode, summary.read_text()


def test_the_workflow_reads_as_one():
    text = workflow()
    assert "fetch-depth: 0" in text, "both revisions are there"
    assert "types: [opened, synchronize, reopened, labeled, unlabeled]" in text
    assert "\t" not in text


@pytest.mark.slow
def test_a_pull_request_that_keeps_the_schedule_passes_and_one_that_does_not_fails(pull_request):
    status, summary = job(pull_request, is_meant=False)
    assert status == 0
    assert "4 workloads: 4 same" in summary
    policy = pull_request / "rlt_fsm" / "policies" / "refill.py"
    text = policy.read_text()
    assert FIRST_TURN in text
    policy.write_text(text.replace(FIRST_TURN, ""))
    git(pull_request, "commit", "--quiet", "-am", "codas before preludes")
    status, summary = job(pull_request, is_meant=False)
    assert status == 1, summary
    assert "different" in summary
    assert job(pull_request, is_meant=True)[0] == 0, "a label says that it is meant"
