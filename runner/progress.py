"""A bar on stderr while a person waits for a start; silent where nobody watches."""

import sys
from collections.abc import Callable
from typing import Final

Progress = Callable[[int, int], None]

_WIDTH: Final = 30


def bar(label: str) -> Progress:
    """Shows (done, total) as a bar, and takes it away at the end."""

    def show(done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        full = _WIDTH * done // total
        line = f"\r{label} [{'#' * full}{'.' * (_WIDTH - full)}] {done}/{total}"
        sys.stderr.write("\r\x1b[K" if done == total else line)
        sys.stderr.flush()

    return show


def silent(_done: int, _total: int) -> None:
    """Shows nothing."""
