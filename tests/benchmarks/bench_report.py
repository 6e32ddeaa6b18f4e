"""A report of 200 requests over 20,000 steps: its size, how long it takes to make and to open.

python -m tests.benchmarks.bench_report            prints a table; it needs a Chromium and a minute
python -m tests.benchmarks.bench_report --write    puts it into docs/how-to/read-a-report.md
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from docs.generate.markdown import fill, table

sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))

import runs
from browsing import browser
from playwright.sync_api import Page

from audit.reporting.figures import run_view
from audit.reporting.page import render

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-a-report.md"
REPEATS = 5
FRAMES = """async (doing) => {
    const { page } = report;
    const took = [];
    for (let i = 0; i < 12; i += 1) {
        const started = performance.now();
        doing === "scroll" ? page.lanes.scroller.scrollTop += 240 : page.view.zoom(i % 2 ? 2 : 0.5);
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        took.push(performance.now() - started);
    }
    return took;
}"""


def measured(folder: Path) -> str:
    """The table."""
    log, out = runs.large(folder / "large.db"), folder / "large.html"
    started = time.perf_counter()
    view = run_view(log, None)
    out.write_text(render([view]), encoding="utf-8")
    made = time.perf_counter() - started
    with browser() as running:
        opened, scrolled, zoomed = zip(
            *(_once(running.new_page(), out) for _ in range(REPEATS)), strict=True
        )
    size = out.stat().st_size
    row = [
        f"{view.report.requests:,}", f"{view.report.steps:,}", f"{view.report.events:,}",
        f"{size / 1e6:.1f} MB", f"{made:.0f} s", f"{statistics.median(opened):.2f} s",
        f"{max(scrolled):.0f} ms", f"{max(zoomed):.0f} ms",
    ]  # fmt: skip
    head = ["requests", "steps", "events", "file", "made in", "opens in", "scroll, worst frame",
            "zoom, worst frame"]  # fmt: skip
    return table(head, [row], numbers=range(len(head)))


def _once(page: Page, report: Path) -> tuple[float, float, float]:
    started = time.perf_counter()
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    took = time.perf_counter() - started
    frames = max(page.evaluate(FRAMES, "scroll")), max(page.evaluate(FRAMES, "zoom"))
    page.close()
    return took, *frames


def main(arguments: list[str]) -> int:
    """Measure, print, and write if that is wanted."""
    with tempfile.TemporaryDirectory() as name:
        text = measured(Path(name))
    sys.stdout.write(text + "\n")
    if "--write" in arguments:
        filled = fill(PAGE.read_text(encoding="utf-8"), {"report": lambda: text}, kind="measured")
        PAGE.write_text(filled, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
