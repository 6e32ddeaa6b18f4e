"""Make the pictures of docs/how-to/read-a-report.md anew.

python -m tests.report.screenshots            all but one
python -m tests.report.screenshots --large    that of 200 requests and 20,000 steps too (a minute)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

import runs
from browsing import browser, opened
from playwright.sync_api import Browser, Page
from settling import settle

from audit.diff import diff
from audit.reporting.figures import run_view
from audit.reporting.page import render
from audit.reporting.sides import sides_view

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
CLOSE = "report.page.view.choose(7); report.page.view.goTo(186, 7, 90)"
TOP = {"x": 0, "y": 0, "width": 1360, "height": 900}
TALL = {**TOP, "height": 1440}


def main(arguments: list[str]) -> int:
    """Take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser() as running:
        folder = Path(name)
        _of_one_run(running, _report(runs.small(folder / "small.db")), "small")
        busy = _report(runs.busy(folder / "busy.db"))
        _of_one_run(running, busy, "busy")
        _parts(running, busy)
        _findings(running, _report(runs.with_findings(folder / "findings.db")))
        fewer = runs.busy(folder / "fewer.db", slots=4)
        _diff(running, _report(folder / "busy.db", fewer))
        if "--large" in arguments:
            _of_one_run(running, _report(runs.large(folder / "large.db")), "large")
    return 0


def _report(log: Path, other: Path | None = None) -> Path:
    out = log.with_name(f"{log.stem}{'' if other is None else '-diff'}.html")
    sides = None if other is None else sides_view(diff(log, other))
    labelled = [(log, "A"), *([] if other is None else [(other, "B")])]
    out.write_text(
        render([run_view(*pair[:1], None, pair[1]) for pair in labelled], sides), "utf-8"
    )
    return out


def _of_one_run(running: Browser, report: Path, name: str) -> None:
    for scheme in ("light", "dark"):
        with opened(running, report, scheme=scheme) as page:
            _save(page, f"{name}{'-dark' if scheme == 'dark' else ''}", TALL)


def _parts(running: Browser, report: Path) -> None:
    with opened(running, report) as page:
        page.evaluate(CLOSE)
        settle(page)
        page.evaluate("document.getElementById('over-time').scrollIntoView()")
        page.locator("#lanes").focus()
        page.keyboard.press("ArrowRight")
        settle(page)
        page.screenshot(path=_path("close"))
        page.evaluate("document.activeElement.blur()")
        for selector in (".panels", "#waits", "#batches"):
            page.locator(selector).screenshot(path=_path(selector.strip("#.")))


def _findings(running: Browser, report: Path) -> None:
    with opened(running, report) as page:
        _save(page, "findings", TOP)
        page.locator("[data-finding]").first.click()
        settle(page)
        page.screenshot(path=_path("finding"))


def _diff(running: Browser, report: Path) -> None:
    for scheme in ("light", "dark"):
        with opened(running, report, scheme=scheme) as page:
            _save(page, f"diff{'-dark' if scheme == 'dark' else ''}", TOP)


def _save(page: Page, name: str, clip: dict[str, int]) -> None:
    page.screenshot(path=_path(name), clip=clip, full_page=True)


def _path(name: str) -> Path:
    return PICTURES / f"report-{name}.png"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
