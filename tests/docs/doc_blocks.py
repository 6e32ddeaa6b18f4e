"""Fenced blocks of Markdown pages, and running those that a reader would run.

Three kinds are run: ```console (lines after `$ ` are typed, the rest is what comes out), ```python
(followed by ```text, that is what it prints), and the command under `<!-- the main command -->`.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^>]+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SECONDS = re.compile(r"\b\d+\.\d\d(?= (?:s|clean|findings|inconclusive)\b)")


class Fence(NamedTuple):
    """One fenced block; `mark` is the comment right above it."""

    language: str
    text: str
    mark: str


class Typed(NamedTuple):
    """One command and what a page says comes out."""

    command: str
    output: str


def fences(page: Path) -> list[Fence]:
    found = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Fence(m["language"], m["text"], m["mark"] or "") for m in found]


def typed(text: str) -> list[Typed]:
    """The commands of a console block; a line after `> ` continues one."""
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


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
