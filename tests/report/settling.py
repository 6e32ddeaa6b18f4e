"""Waiting for a page to have drawn what it was asked for."""

from __future__ import annotations

from typing import Any


def settle(page: Any) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
