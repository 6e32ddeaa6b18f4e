"""Reports of real runs, each made once, and a browser that opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import runs
from typer.testing import CliRunner

from audit.cli import app

Opener = Callable[..., AbstractContextManager]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The log of a run of `runs`, by its name."""
    folder = tmp_path_factory.mktemp("logs")
    made = {
        "large": lambda path: runs.large(path, slots=16, requests=30),
        "again": runs.busy,
        "fewer": lambda path: runs.busy(path, slots=4),
    }

    def log(name: str) -> Path:
        path = folder / f"{name}.db"
        return path if path.exists() else made.get(name, getattr(runs, name, None))(path)

    return log


@pytest.fixture(scope="session")
def reports(logs: Callable[[str], Path]) -> Callable[..., Path]:
    """The report of a run, or of two."""

    def report(name: str, against: str | None = None) -> Path:
        log = logs(name)
        out = log.with_name(f"{name}-{against}.html")
        if not out.exists():
            two = [] if against is None else ["--against", str(logs(against))]
            result = CliRunner().invoke(app, ["report", str(log), "-o", str(out), *two])
            assert result.exit_code == 0, result.output
        return out

    return report


# Playwright's event loop counts as running as long as the browser does, and no `asyncio.run` of
# other tests may come into that time: so not for the whole session.
@pytest.fixture(scope="module")
def running() -> Iterator:
    browsing = pytest.importorskip("browsing", reason="playwright is not installed")
    if browsing.chromium() is None:
        pytest.skip("this machine has no Chromium")
    with browsing.browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def opened(running, reports: Callable[..., Path]) -> Opener:
    """A report, opened: by the name of its run, and of the second one."""
    browsing = pytest.importorskip("browsing")

    def open_report(name: str, against: str | None = None, **options: object):
        return browsing.opened(running, reports(name, against), **options)

    return open_report
