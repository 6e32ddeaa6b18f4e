"""What every command shares: exit statuses, one sentence for a mistake, JSON, progress."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Self

import msgspec
import typer

from rlt_fsm.errors import ConfigError, RltError

SHOW_PROGRESS_AFTER_S = 2.0
REDRAW_EVERY_S = 0.2


class Status(IntEnum):
    """Exit statuses (contract §3)."""

    WELL = 0
    NO = 1  # findings, a difference
    USAGE = 2  # the input cannot be used
    INCONCLUSIVE = 3


@contextmanager
def mistakes_in_one_sentence() -> Iterator[None]:
    """A user's mistake ends with one sentence and status 2, never with a traceback."""
    try:
        yield
    except RltError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(Status.USAGE) from error


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """What `--set SECTION.FIELD=VALUE` asks for, by field.

    Raises:
        ConfigError: a pair without `=`.
    """
    settings = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair}: must be SECTION.FIELD=VALUE")
        settings[path.strip()] = value.strip()
    return settings


def print_json(value: object) -> None:
    """A result for machines, on stdout."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


class ProgressLine:
    """A line on stderr that tells how far a long command is, where a person watches.

    `clock` gives seconds. Nothing is shown before SHOW_PROGRESS_AFTER_S or to a pipe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + SHOW_PROGRESS_AFTER_S
        self._is_watched = sys.stderr.isatty()
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Tell that `done` of `total` events are read."""
        self.show(f"read {done:,} of {total:,} events ({done / max(1, total):.0%})")

    def show(self, text: str) -> None:
        """Tell what is going on."""
        if not self._is_watched or self._clock() < self._next:
            return
        self._next = self._clock() + REDRAW_EVERY_S
        self._is_shown = True
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
