"""Commands and snippets in the pages, a reader's shell to run them in, and pasting what comes out.

Fenced blocks are run: console (lines after `$ ` are typed, those after `> ` go on, the rest is what
comes out), python, sh (must end with status 0), and the command under `<!-- the main command -->`
without its installing part. A text block right after python or that command is what it prints. A
comment right above a block may say otherwise: `file: NAME` (the block is that file's text),
`in a clone` (of this repository, with a branch `main`), `not run: REASON`. The tests compare;
`python -m docs.generate --outputs` pastes anew. Blocks of one page share a folder.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
MAIN_COMMAND, TEST_COMMAND = "the main command", "the test command"
FILE, CLONE, NOT_RUN = "file: ", "in a clone", "not run: "
RUN_LANGUAGES: Final = frozenset({"console", "python", "sh"})

_FENCE: Final = re.compile(
    r"(?:<!-- (?P<mark>[^>]+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SECONDS: Final = re.compile(r"\b\d+\.\d\d(?= (?:s|clean|findings|inconclusive)\b)")


class Fence(NamedTuple):
    """One fenced block; `mark` is the comment right above it, `start:end` its text in the page."""

    language: str
    text: str
    mark: str
    start: int
    end: int


class Typed(NamedTuple):
    """One command and what a page says comes out."""

    command: str
    output: str


def fences(page: str) -> list[Fence]:
    """The fenced blocks of a page, in order."""
    found = _FENCE.finditer(page)
    return [Fence(m["language"], m["text"], m["mark"] or "", *m.span("text")) for m in found]


def typed(text: str) -> list[Typed]:
    """The commands of a console block."""
    commands: list[Typed] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Typed(line[2:], ""))
        elif line.startswith("> ") and not commands[-1].output:
            commands[-1] = Typed(f"{commands[-1].command}\n{line[2:]}", "")
        else:
            commands[-1] = Typed(commands[-1].command, f"{commands[-1].output}{line}\n")
    return commands


def without_times(text: str) -> str:
    """Text with every time replaced and runs of spaces taken as one."""
    lines = (re.sub(r" {2,}", " ", line).strip() for line in text.splitlines())
    return _SECONDS.sub("N", "\n".join(lines)).strip()


# ---- a reader's shell ------------------------------------------------------------------------

_SCRIPT: Final = """#!{python}
import sys
sys.argv[0] = {name!r}
{body}
"""
_SQLITE3: Final = """
import sqlite3
with sqlite3.connect(sys.argv[1]) as connection:
    for row in connection.execute(sys.argv[2]):
        print(*("" if cell is None else cell for cell in row), sep="|")
"""
_PROGRAMS: Final = {
    "rlt-fsm": "from runner.cli import main\nmain()",
    "rlt-audit": "from audit.cli import main\nmain()",
    "sqlite3": _SQLITE3,  # the reader's own tool; here so that nobody needs it to run the tests
    "pytest": "import pytest\nsys.exit(pytest.main())",
    "python": "import os\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])",
}

_CLONE: Final = """
[ -d clone ] || git clone --quiet --shared {root} clone
cd clone
git rev-parse --quiet --verify main >/dev/null || git branch --quiet main
"""

Shell = Callable[[str], str]


@contextmanager
def shell() -> Iterator[Shell]:
    """The project's commands on the PATH, an empty folder: type a line, get all that it prints."""
    with TemporaryDirectory() as name:
        programs, work = Path(name, "programs"), Path(name, "work")
        programs.mkdir()
        work.mkdir()
        for program, body in _PROGRAMS.items():
            path = programs / program
            script = _SCRIPT.format(python=sys.executable, name=program, body=body)
            path.write_text(script, encoding="utf-8")
            path.chmod(0o700)
        environment = {
            "OMP_NUM_THREADS": "1",
            **{name: own for name, own in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }

        def run(line: str) -> str:
            return subprocess.run(  # noqa: S603  # lines of our own pages
                ["bash", "-c", line],  # noqa: S607  # whichever bash the reader has
                cwd=work,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            ).stdout

        yield run


# ---- running a page --------------------------------------------------------------------------


def repasted(page: str) -> str:
    """A page with every output as it is now; what differs in times alone is left."""
    parts: list[str] = []
    at = 0
    printed: str | None = None
    with shell() as run:
        for fence in fences(page):
            parts.append(page[at : fence.start])
            at = fence.end
            text, printed = _again(run, fence, printed)
            is_same = without_times(text) == without_times(fence.text)
            parts.append(fence.text if is_same else text)
    return "".join([*parts, page[at:]])


def _again(run: Shell, fence: Fence, printed: str | None) -> tuple[str, str | None]:
    """(what the block should hold, what the block after it should hold if it is an output)."""
    if fence.mark.startswith(NOT_RUN) or fence.mark == TEST_COMMAND:
        return fence.text, None
    if fence.mark.startswith(FILE):
        name = fence.mark.removeprefix(FILE)
        run(f"mkdir -p $(dirname {name}); cat > {name} <<'END OF FILE'\n{fence.text}END OF FILE\n")
        return fence.text, None
    if fence.language == "sh" and fence.mark != MAIN_COMMAND:
        return _checked(run, fence), None
    if fence.language == "console":
        lines = (
            "$ " + command.replace("\n", "\n> ") + "\n" + run(command)
            for command, _ in typed(fence.text)
        )
        return "".join(lines), None
    if fence.language == "python":
        return fence.text, run(f"cat > snippet.py <<'END OF SNIPPET'\n{fence.text}END OF SNIPPET\n"
                               "python snippet.py")  # fmt: skip
    if fence.mark == MAIN_COMMAND:
        return fence.text, run(main_job(fence.text))
    if fence.language == "text" and printed is not None:
        return printed, None
    return fence.text, None


def _checked(run: Shell, fence: Fence) -> str:
    """A script as it stands if it ends well; else with what it said."""
    script = f"set -euo pipefail\n{fence.text}"
    if fence.mark == CLONE:
        script = f"{_CLONE.format(root=ROOT)}\n{script}"
    said = run(f"(\n{script}\n) && echo 'IT ENDED WELL'")
    return fence.text if said.endswith("IT ENDED WELL\n") else f"{fence.text}{said}"


def main_job(command: str) -> str:
    """What README's first command does once the package is installed."""
    return command.strip().split(" && ")[-1].removeprefix(".venv/bin/")
