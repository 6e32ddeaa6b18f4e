"""Progress on stderr while a person waits for a start; silent where nobody watches."""

from collections.abc import Callable

from rlt_fsm.progress_line import ProgressLine

Progress = Callable[[int, int], None]


def bar(label: str) -> Progress:
    """Shows (done, total) as a bar, and takes it away at the end."""
    line = ProgressLine()

    def show(done: int, total: int) -> None:
        line.count(done, total, label, "graph")
        if done == total:
            line.clear()

    return show


def silent(_done: int, _total: int) -> None:
    """Shows nothing."""
