"""The line on stderr that tells a person how far a long command is, how fast, and what is left."""

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self, TextIO

from .wording import counted

SHOW_PROGRESS_AFTER_S = 2.0
REDRAW_EVERY_S = 0.1
_COLUMNS: Final = 80  # where the terminal does not say
_WIDTH: Final = 20  # of a bar
_SHORTEST_S: Final = 0.5  # less says nothing about a rate

Count = Callable[[int, int], None]  # (done, all there is to do)


class ProgressLine:
    """A line on stderr for a person who waits; silent elsewhere and in the first seconds.

    It is no wider than the terminal and made of plain characters: no colours, no codes. Leaving
    `with` takes it away. `clock` gives seconds.
    """

    def __init__(
        self,
        *,
        is_wanted: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self.is_watched = is_wanted and self._stream.isatty()
        self._clock = clock
        self._due_at = clock() + SHOW_PROGRESS_AFTER_S if self.is_watched else math.inf
        self._columns_shown = 0
        self._pace = Pace(clock)

    @property
    def is_due(self) -> bool:
        """Whether `show` would show anything now: ten times a second at most."""
        return self.is_watched and self._clock() >= self._due_at

    def show(self, text: str) -> None:
        """Show where things are, if it is due."""
        if not self.is_due:
            return
        self._due_at = self._clock() + REDRAW_EVERY_S
        text = text[: self._columns() - 1]  # a full line would wrap, and could not be taken away
        self._write(text.ljust(self._columns_shown))
        self._columns_shown = len(text)

    def __call__(self, done: int, total: int) -> None:
        """Tell that `done` of `total` events are read."""
        self.count(done, total, "read", "event")

    def count(self, done: int, total: int, verb: str, unit: str) -> None:
        """Tell how much is done, at what rate, and how long the rest takes.

        `[#####...............] read 50,000 of 200,000 events, 400,000/s, 1 s left`
        """
        if not self.is_watched:
            return
        self._pace.note(done, total)
        if self.is_due:
            some = f"{verb} {done:,} of {counted(total, unit)}"
            self.show(f"{bar_of(done, total)} {some}{self._pace.text()}")

    def clear(self) -> None:
        """Take the line away."""
        if self._columns_shown:
            self._write(" " * self._columns_shown + "\r")
            self._columns_shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text}")
        self._stream.flush()

    def _columns(self) -> int:
        with suppress(OSError):
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        return _COLUMNS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()


class Pace:
    """How fast something counts up; it begins anew where the count falls or its end changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_at, self._began_with = clock(), 0
        self._done, self._total = 0, 0

    def note(self, done: int, total: int) -> None:
        """Tell how far it is; a total of 0: nobody knows how far it is to go."""
        if done < self._done or total != self._total:
            self._began_at, self._began_with = self._clock(), done
        self._done, self._total = done, total

    def text(self) -> str:
        """`, 400,000/s, 1 s left`; empty as long as nothing can be said."""
        seconds = self._clock() - self._began_at
        made = self._done - self._began_with
        if seconds < _SHORTEST_S or made <= 0:
            return ""
        rate = made / seconds
        rest = max(self._total - self._done, 0)
        left = f", {duration(rest / rate)} left" if self._total else ""
        return f", {_rate(rate)}/s{left}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def duration(seconds: float) -> str:
    """A time for people: `8 s`, `2 min 05 s`, `3 h 10 min`."""
    whole = math.ceil(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes_of_hour = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_of_hour:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{whole} s"


def bar_of(done: int, total: int) -> str:
    """`[#####...............]`; full where there is nothing to do."""
    full = min(_WIDTH, _WIDTH * done // total) if total else _WIDTH
    return f"[{'#' * full}{'.' * (_WIDTH - full)}]"
