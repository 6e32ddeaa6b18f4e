"""Git worktrees that exist while they are needed, and leave no trace when they are not."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from rlt_fsm.errors import RltError

WORKING_TREE: Final = "."  # stands for the files as they are, committed or not


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A revision as it was named, and its commit; of the working tree, the one it is based on."""

    name: str
    commit: str


class GitError(RltError):
    """A repository or revision that cannot be used."""


def clean_environment() -> dict[str, str]:
    """The environment without what git sets in hooks and rebases: it names another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def repository(folder: Path) -> Path:
    """The top folder of the repository that `folder` lies in.

    Raises:
        GitError: there is none, or no git.
    """
    if not folder.is_dir():
        raise GitError(f"{folder}: there is no such folder")
    return Path(_git(folder, "rev-parse", "--show-toplevel", what=f"{folder}: not a repository"))


def resolve(repo: Path, name: str) -> Revision:
    """The commit that a revision's name means.

    Raises:
        GitError: the repository has no such revision.
    """
    wanted = ("HEAD" if name == WORKING_TREE else name) + "^{commit}"
    what = f"{repo}: there is no revision {name!r}"
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    return Revision(name=name, commit=_git(repo, *verify, wanted, what=what))


@contextmanager
def checked_out(repo: Path, revision: Revision, folder: Path) -> Iterator[Path]:
    """A folder with the files of a revision; the repository itself, for the working tree.

    A worktree is made in `folder` and removed again, whatever happens meanwhile.
    """
    if revision.name == WORKING_TREE:
        yield repo
        return
    try:
        _git(repo, "worktree", "add", "--detach", "--quiet", str(folder), revision.commit,
             what=f"{repo}: {revision.name} cannot be checked out")  # fmt: skip
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _git(repo, "worktree", "prune", what=f"{repo}: its worktrees cannot be tidied up")


def _git(folder: Path, *arguments: str, what: str) -> str:
    """What a git command prints; its complaint as the end of a sentence."""
    command = ["git", "-c", f"core.hooksPath={os.devnull}", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(  # noqa: S603  # our own command line, no shell
            command, capture_output=True, text=True, check=False, env=clean_environment()
        )
    except OSError as error:
        raise GitError(f"git cannot be run: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise GitError(what + (f" ({lines[-1]})" if lines else ""))
    return done.stdout.strip()
