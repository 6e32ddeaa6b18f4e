"""`audit.compare`: what two revisions of the code make of the same workloads.

Each revision is checked out into a worktree of its own and runs the workloads in a process of its
own; their logs are compared here. Whatever happens, no worktree and no process is left behind.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from rlt_fsm.arguments import function_or_none, one_of, path_text, shown
from rlt_fsm.errors import LogUnavailable, WorkloadError
from rlt_fsm.progress_line import Pace

from .comparing.runs import Code, Ran
from .comparing.worktrees import (
    WORKING_TREE,
    GitError,
    Revision,
    checked_out,
    repository,
    resolve,
)
from .diff import Diff, diff
from .diffing.difference import Level

POLL_S: Final = 0.2
Outcome = Literal["same", "different", "unusable", "inconclusive", "uncompared"]
# The worst of several decides; what the base cannot run says nothing about the head.
SEVERITY: Final[tuple[Outcome, ...]] = (
    "different",
    "unusable",
    "inconclusive",
    "same",
    "uncompared",
)
Tell = Callable[[str], None]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One workload on both sides; `diff` is None where one of them could not run it."""

    workload: str
    base: Ran
    head: Ran
    diff: Diff | None

    @property
    def outcome(self) -> Outcome:
        """What it comes to.

        A head that breaks off where the base does not, or the other way round, is different; one
        that cannot run what the base can is unusable.
        """
        if self.base.end == "unusable":
            return "uncompared"
        if self.head.end == "unusable":
            return "unusable"
        if self.base.end != self.head.end:
            return "different"
        assert self.diff is not None, "both sides left a log"
        if self.diff.differs:
            return "different"
        return "inconclusive" if self.diff.is_cut else "same"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two revisions on some workloads, in the order in which these were given."""

    base: Revision
    head: Revision
    level: Level
    compared: list[Compared]

    @property
    def outcome(self) -> Outcome:
        """The worst of all workloads; `uncompared` where nothing could be compared."""
        return min((one.outcome for one in self.compared), key=SEVERITY.index)


def compare(
    base: str,
    head: str,
    workloads: Sequence[str | os.PathLike[str]],
    *,
    repo: str | os.PathLike[str] = ".",
    level: Level = "events",
    keep: str | os.PathLike[str] | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """Run workloads with two revisions and compare what they did.

    Args:
        base: a revision of the repository, A in every diff; `.` is the working tree as it is.
        head: the same, B in every diff.
        workloads: workload files, and folders of them.
        repo: a folder of the repository.
        level: which difference counts.
        keep: a folder for the logs, `NAME.base.db` and `NAME.head.db`; else they are not kept.
        tell: told what is going on.

    Raises:
        RltError: no repository, no such revision, no workload, or a log that cannot be read.
    """
    one_of("level", level, get_args(Level))
    function_or_none("tell", tell)
    base, head = path_text("base", base), path_text("head", head)
    files = workload_files(workloads)
    top = repository(Path(path_text("repo", repo)))
    revisions = resolve(top, base), resolve(top, head)
    with tempfile.TemporaryDirectory(prefix="rlt-audit-") as name:
        folder = Path(name).resolve()
        logs = folder if keep is None else _made(Path(path_text("keep", keep)))
        with (
            checked_out(top, revisions[0], folder / "base") as base_code,
            checked_out(top, revisions[1], folder / "head") as head_code,
            Code(base_code) as base_process,
            Code(head_code) as head_process,
        ):
            pair = _Pair(revisions, (base_process, head_process), logs, level)
            compared, pace = [], Pace()
            for number, file in enumerate(files, start=1):
                pace.note(number - 1, len(files))
                left = pace.text()
                place = f"workload {number} of {len(files)}: {file.name}{left}"
                compared.append(pair.compare(file, place, tell))
    return Comparison(base=revisions[0], head=revisions[1], level=level, compared=compared)


def workload_files(given: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that are given, and the `.json` files of the folders, in order of their names.

    Raises:
        WorkloadError: nothing is given, or something is not there.
    """
    files: list[Path] = []
    if not isinstance(given, list | tuple):
        raise WorkloadError(f"workloads={shown(given)}: must be a list of files and folders")
    for path in (Path(path_text("workloads", item)) for item in given):
        if path.is_dir():
            found = sorted(path.glob("*.json"))
            if not found:
                raise WorkloadError(f"{path}: the folder has no .json file")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise WorkloadError(f"{path}: there is no such file or folder")
    if not files:
        raise WorkloadError("no workload is given: name files or folders of them")
    return [path.resolve() for path in dict.fromkeys(files)]


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogUnavailable(f"{folder}: cannot be made ({error.strerror or error})") from error
    return folder.resolve()


class _Pair:
    """Two checked-out revisions, ready to run workloads."""

    def __init__(
        self,
        revisions: tuple[Revision, Revision],
        code: tuple[Code, Code],
        logs: Path,
        level: Level,
    ) -> None:
        self._revisions = revisions
        self._code = code
        self._logs = logs
        self._level = level
        self._names: set[str] = set()

    def compare(self, workload: Path, place: str, tell: Tell | None) -> Compared:
        """One workload, both sides at once; `place` is what is told meanwhile."""
        name = self._name(workload)
        logs = self._logs / f"{name}.base.db", self._logs / f"{name}.head.db"
        for log in logs:
            log.unlink(missing_ok=True)
        for code, log in zip(self._code, logs, strict=True):
            code.start(workload, log)
        for code in self._code:
            while not code.is_over(POLL_S):
                if tell is not None:
                    tell(place)
        base, head = self._code
        ran = base.result(), head.result()
        found = None if any(side.end == "unusable" for side in ran) else self._diff(logs)
        return Compared(workload=workload.name, base=ran[0], head=ran[1], diff=found)

    def _name(self, workload: Path) -> str:
        """A name for its logs that no other workload has."""
        name, number = workload.stem, 1
        while name in self._names:
            number += 1
            name = f"{workload.stem}-{number}"
        self._names.add(name)
        return name

    def _diff(self, logs: tuple[Path, Path]) -> Diff:
        found = diff(*logs, level=self._level, anyway=True)  # one file describes both
        for revision, about in zip(self._revisions, (found.a, found.b), strict=True):
            is_known = revision.name != WORKING_TREE and about.revision != ""
            if is_known and about.revision != revision.commit:
                raise GitError(
                    f"{revision.name}: another revision ran ({about.revision}): does a site file "
                    "put another copy of the packages first?"
                )
        return found
