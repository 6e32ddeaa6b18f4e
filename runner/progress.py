"""Progress on stderr while a person waits for a start; silent where nobody watches."""

from collections.abc import Callable

from rlt_fsm.progress_line import ProgressLine

Progress = Callable[[int, int], None]


def bar(verb: str, unit: str) -> Progress:
    """Shows (done, total) as a bar with rate and time left, and takes it away at the end."""
    line = ProgressLine()

    def show(done: int, total: int) -> None:
        line.count(done, total, verb, unit)
        if done == total:
            line.clear()

    return show


def silent(_done: int, _total: int) -> None:
    """Shows nothing."""
