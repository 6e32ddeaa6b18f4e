"""Fills the page: what is known of each run goes through `page/report.html` into one HTML text.

Styles and scripts are put into the page, and its own policy forbids it to load anything.
"""

from pathlib import Path
from typing import Final

import jinja2
import msgspec

from .figures import RunView
from .sides import SidesView

FOLDER: Final = Path(__file__).with_name("page")
SCRIPTS: Final = (
    "data.js", "words.js", "view.js", "paint.js", "charts.js", "lanes.js", "strips.js",
    "life.js", "paged.js", "panels.js", "sides.js", "main.js",
)  # fmt: skip


def render(runs: list[RunView], sides: SidesView | None = None) -> str:
    """The page of one run, or of two and where they part."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = number
    return environment.get_template("report.html").render(
        runs=runs,
        sides=sides,
        style=_text("report.css"),
        script="\n".join(_text(name) for name in SCRIPTS),
        data=[in_script(run.packed) for run in runs],
    )


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def in_script(value: object) -> str:
    """JSON that no HTML reader takes for the end of its element."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def number(value: float | None, digits: int | None = None) -> str:
    """A number as people read it; three figures where it is no whole one and nothing is asked."""
    if value is None:
        return "-"
    if isinstance(value, int) or (digits is None and value == int(value)):
        return f"{int(value):,}"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
