"""A reader's shell: the project's commands on the PATH, an empty folder to work in."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from doc_blocks import ROOT

_SCRIPT = """#!{python}
import sys
sys.argv[0] = {name!r}
{body}
"""
_SQLITE3 = """
import sqlite3
with sqlite3.connect(sys.argv[1]) as connection:
    for row in connection.execute(sys.argv[2]):
        print(*("" if cell is None else cell for cell in row), sep="|")
"""
_COMMANDS = {
    "rlt-fsm": "from runner.cli import main\nmain()",
    "rlt-audit": "from audit.cli import main\nmain()",
    "sqlite3": _SQLITE3,  # the reader's own tool; here so that the tests do not need it
    "python": "import os\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
}

Shell = Callable[[str], str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Type a line, get stdout and stderr as one text."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in _COMMANDS.items():
        path = programs / name
        path.write_text(_SCRIPT.format(python=sys.executable, name=name, body=body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    work = tmp_path / "work"
    work.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=work,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.stdout

    return run
