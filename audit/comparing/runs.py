"""Workloads run by the code of one folder, in a process of its own that takes one after another.

Only what every revision promises is used: the command `rlt-fsm run`, and its log.
"""

import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final, Literal, Self

import msgspec

from .worktrees import clean_environment

# In `-c` the first entry of the path is the current folder, before anything that is installed.
_SERVE: Final = """
import contextlib, io, json, sys, traceback
from runner.cli import app
for line in sys.stdin:
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(json.loads(line))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except BaseException:
            traceback.print_exc()
            status = 1
    sys.stdout.write(json.dumps([status, out.getvalue(), err.getvalue()]) + "\\n")
    sys.stdout.flush()
"""
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


class Code:
    """The code of a folder, ready to run workloads; a context manager that leaves no process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `__exit__`
        self._process: subprocess.Popen[bytes] | None = None
        self._reply = bytearray()
        self._log = folder

    def start(self, workload: Path, log: Path) -> None:
        """Begin to run a workload; nothing else may be under way."""
        if self._process is None or self._process.poll() is not None:
            self._launch()
        self._log = log
        self._reply.clear()
        command = ["run", "--workload", str(workload), "--db", str(log), "--no-audit", "--json"]
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            process.wait()  # it cannot even be started: `result` says so

    def _launch(self) -> None:
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(  # noqa: S603  # our own command line, no shell
            [sys.executable, "-c", _SERVE],
            cwd=self._folder,
            env={
                **clean_environment(),
                "PYTHONPATH": str(self._folder),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # an interrupt is ours to pass on
        )

    def is_over(self, within_s: float) -> bool:
        """Whether the workload has ended, or does so within some seconds."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        if self._reply.endswith(b"\n"):
            return True
        ready, _, _ = select.select([process.stdout], [], [], within_s)
        if not ready:
            return False
        part = os.read(process.stdout.fileno(), 1 << 16)
        self._reply += part
        if not part:
            process.wait()  # it has closed its end: there is no more to come
        return not part or self._reply.endswith(b"\n")

    def result(self) -> Ran:
        """What came of the workload, once it is over."""
        if self._reply.endswith(b"\n"):
            status, out, err = msgspec.json.decode(bytes(self._reply), type=tuple[int, str, str])
        else:
            self._errors.seek(0)
            status, out, err = 1, "", self._errors.read().decode(errors="replace")
        lines = err.strip().splitlines()
        message = (lines[-1] if lines else "it said nothing").removeprefix("error: ")
        if status == USAGE or not self._log.exists():
            return Ran(end="unusable", message=message)
        try:
            printed = msgspec.json.decode(out, type=_Printed)
        except msgspec.MsgspecError:
            return Ran(end="stopped", message=message)
        return Ran(end="ran", failures=printed.summary.expect_failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._errors.close()
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
