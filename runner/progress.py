"""A bar on stderr while a person waits for a start; silent where nobody watches."""

import sys
from collections.abc import Callable
from typing import Final

Progress = Callable[[int, int], None]

_WIDTH: Final = 20


def bar(label: str) -> Progress:
    """Shows (done, total) as a bar, and takes it away at the end."""

    def show(done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        line = f"{label} {bar_of(done, total)} {done}/{total}"
        sys.stderr.write(f"\r{' ' * len(line)}\r" if done == total else f"\r{line}")
        sys.stderr.flush()

    return show


def bar_of(done: int, total: int) -> str:
    """`[#####...............]`; full where there is nothing to do."""
    full = _WIDTH * done // total if total else _WIDTH
    return f"[{'#' * full}{'.' * (_WIDTH - full)}]"


def silent(_done: int, _total: int) -> None:
    """Shows nothing."""
