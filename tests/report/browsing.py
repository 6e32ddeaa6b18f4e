"""A real Chromium without a window, and a report opened in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from settling import settle

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1360, 900


def chromium() -> str | None:
    """The browser that this machine has; RLT_CHROMIUM names another one."""
    found = (shutil.which(name) for name in (os.environ.get("RLT_CHROMIUM", ""), *PROGRAMS) if name)
    return next(filter(None, found), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """The browser, running."""
    program = chromium()
    assert program is not None, "there is no Chromium"
    with sync_playwright() as playwright:
        # Root has no sandbox, and test machines are often root's.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def opened(
    running: Browser, report: Path, *, scheme: str = "light", **options: object
) -> Iterator[Page]:
    """A report in a window of its own; what goes wrong in it is an error here.

    Raises:
        AssertionError: a script failed, something was said on the console, or something was loaded.
    """
    context = running.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, **options
    )
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("console", lambda message: said.append(f"console: {message.text}"))
    page.on("request", lambda request: said.append(f"request: {request.url}"))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    settle(page)
    yield page
    context.close()
    assert said == [f"request: {report.as_uri()}"]
