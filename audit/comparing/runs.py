"""One workload run by the code of one folder, in a process of its own.

Only what every revision promises is used: the command `rlt-fsm run`, and its log.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from .worktrees import clean_environment

# In `-c` the first entry of the path is the current folder, before anything that is installed.
_RUN: Final = "from runner.cli import main; main()"
_WAIT_AT_MOST_S: Final = 10.0  # for a process that was told to end
USAGE: Final = 2

End = Literal["ran", "unusable", "stopped"]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a side: `unusable` revisions cannot run the workload, and leave no log;
    `stopped` ones broke off.

    `message` is the last line of what it said then; `failures` are expectations that failed.
    """

    end: End
    message: str | None = None
    failures: list[str] = []


class _Summary(msgspec.Struct):
    expect_failures: list[str] = []


class _Printed(msgspec.Struct):
    run_id: int
    summary: _Summary


class SideProcess:
    """A side on its way; a context manager that leaves no process behind."""

    def __init__(self, code: Path, workload: Path, log: Path) -> None:
        self._log = log
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        command = ["run", "--workload", str(workload), "--db", str(log), "--no-audit", "--json"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(  # noqa: S603  # our own command line, no shell
                [sys.executable, "-c", _RUN, *command],
                cwd=code,
                env={
                    **clean_environment(),
                    "PYTHONPATH": str(code),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def is_over(self, within_s: float) -> bool:
        """Whether it has ended, or does so within some seconds."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def result(self) -> Ran:
        """What came of it, once it is over."""
        lines = self._err.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        message = (lines[-1] if lines else "it said nothing").removeprefix("error: ")
        if self._process.returncode == USAGE or not self._log.exists():
            return Ran(end="unusable", message=message)
        try:
            printed = msgspec.json.decode(self._out.read_bytes(), type=_Printed)
        except msgspec.MsgspecError:
            return Ran(end="stopped", message=message)
        return Ran(end="ran", failures=printed.summary.expect_failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            if not self.is_over(_WAIT_AT_MOST_S):
                self._process.kill()
                self._process.wait()
        self._out.unlink(missing_ok=True)
        self._err.unlink(missing_ok=True)
