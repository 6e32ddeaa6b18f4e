"""The queries of the page that asks a log, one by one, and the file that hands them to Datasette.

A query is a `sqlite3` command of `how-to/query-the-log.md`; its title is the line above its block.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from .pasted import ROOT, fences, typed

PAGE: Final = ROOT / "docs" / "how-to" / "query-the-log.md"
DATABASE: Final = "run"  # the name that Datasette gives to run.db

_TITLE: Final = re.compile(r"([^\n]+):\n\n```console\n\Z")


class Query(NamedTuple):
    """A question and its SQL."""

    title: str
    sql: str

    @property
    def slug(self) -> str:
        """The title, up to its first pause, as part of an address."""
        head = re.split(r"[:,]", self.title, maxsplit=1)[0]
        return re.sub(r"[^a-z0-9]+", "-", head.lower()).strip("-")


def queries() -> list[Query]:
    """The queries in the order of the page."""
    page = PAGE.read_text(encoding="utf-8")
    found = []
    for fence in fences(page):
        if fence.language != "console":
            continue
        for command, _ in typed(fence.text):
            program, *arguments = shlex.split(command)
            if program == "sqlite3":
                title = _TITLE.search(page[: fence.start])
                assert title is not None, f"no line above the block says what it asks: {command}"
                found.append(Query(title[1], arguments[1].strip()))
    return found


def datasette_metadata() -> str:
    """Every query as a canned query of the database `run`, in the form of Datasette's metadata."""
    canned = {query.slug: {"title": query.title, "sql": query.sql} for query in queries()}
    return json.dumps({"databases": {DATABASE: {"queries": canned}}}, indent=1) + "\n"


FILES: Final[dict[Path, Callable[[], str]]] = {
    PAGE.with_name("queries.json"): datasette_metadata,
}
