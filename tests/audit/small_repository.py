"""A small git repository of copies of the packages, at revisions where a scheduler rule differs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Another rule: decode loops go before everything but preludes.
DECODE_FIRST = """

_usual = after_decode_prelude


def after_decode_prelude(view):
    if view.ready(WorkKey.DECODE_RECURRENT):
        yield Turn((WorkKey.DECODE_RECURRENT,), "decode-first")
    yield from _usual(view)
"""


def make_repository(folder: Path) -> None:
    """Its revisions, in order: base, comment, broken (no Python), mended, rule, late."""
    for package in ("rlt_fsm", "runner"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoint")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    git(folder, "init", "--quiet")
    policy, engine = folder / "rlt_fsm/policies/refill.py", folder / "rlt_fsm/engine.py"
    usual, whole = policy.read_text(), engine.read_text()
    commit(folder, "base")
    policy.write_text(usual + "\n# a comment\n")
    commit(folder, "comment")
    engine.write_text("this is no Python\n" + whole)
    commit(folder, "broken")
    engine.write_text(whole)
    commit(folder, "mended")
    policy.write_text(usual + DECODE_FIRST)
    commit(folder, "rule")
    policy.write_text(usual + DECODE_FIRST + "\n# a comment\n")
    commit(folder, "late")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", *who, "-C", str(folder), *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def commit(folder: Path, name: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", name)
    git(folder, "tag", name)


def the_command(folder: Path) -> Path:
    script = folder / "rlt_audit.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom audit.cli import main\nmain()\n"
    )
    return script


def assert_tidy(repo: Path) -> None:
    """No worktree is left, and no file of the repository has changed."""
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert not (repo / ".git" / "worktrees").exists()
    assert git(repo, "status", "--porcelain") == ""
