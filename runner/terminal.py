"""What the commands share on a terminal: exit statuses, mistakes as sentences, log lines.

Results are printed by the consoles (`console.py`, `simulate_console.py`), not here. Exit status:
0 all well; 1 a finding, a failed expectation or a failing seed; 2 usage or unusable input; 3 the
audit is inconclusive.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TextIO

import structlog
import typer

from rlt_fsm.errors import ConfigError, RltError
from rlt_fsm.oplog import Format, Settings, choose, renderer

OK, NO, USAGE, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 130
SHOW_PROGRESS_AFTER_S = 2.0
_REFRESH_S = 0.1
_COLUMNS = 80  # where the terminal does not say


@contextmanager
def mistakes_as_sentences(interrupted: str) -> Iterator[None]:
    """What the caller can put right is one sentence on stderr, without a traceback."""
    try:
        yield
    except RltError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE) from None
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {interrupted}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """What `--set SECTION.FIELD=VALUE` asks for, by field; ConfigError for a pair without `=`."""
    settings = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair}: must be SECTION.FIELD=VALUE")
        settings[path.strip()] = value.strip()
    return settings


def log_as(settings: Settings, line: "StatusLine | None" = None) -> None:
    """Take what the command line says of the operational log."""
    choose(settings)
    log_to_stderr(settings.level, line, form=settings.format)


def log_to_stderr(
    level: str, line: "StatusLine | None" = None, *, form: Format = Format.CONSOLE
) -> None:
    """Log lines of `level` and worse, one each: results are on stdout and in the event log.

    A status line makes room for them. They are coloured on a terminal, unless NO_COLOR is set.
    """

    def make_room(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if line is not None:
            line.clear()
        return event

    has_colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _error_in_one_line,
            make_room,
            *renderer(form, has_colors=has_colors),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _error_in_one_line(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if event.pop("exc_info", None):
        event["error"] = repr(sys.exc_info()[1])
    return event


def seed_range(text: str, most: int) -> range:
    """`A:B` as a range.

    Raises:
        RltError: a text of another form.
    """
    low, colon, high = text.partition(":")
    if not (colon and low.isdecimal() and high.isdecimal() and int(low) < int(high) <= most):
        raise RltError(f"--seeds {text}: must be A:B with 0 <= A < B <= {most}")
    return range(int(low), int(high))


class StatusLine:
    """A line on stderr for a person who waits; silent elsewhere and in the first seconds.

    It is no wider than the terminal and made of plain characters: no colours, no codes. Leaving
    `with` takes it away.
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

    @property
    def is_due(self) -> bool:
        """Whether `show` would show anything now: ten times a second at most."""
        return self.is_watched and self._clock() >= self._due_at

    def show(self, text: str) -> None:
        """Show where things are, if it is due."""
        if not self.is_due:
            return
        self._due_at = self._clock() + _REFRESH_S
        text = text[: self._columns() - 1]  # a full line would wrap, and could not be taken away
        self._write(text.ljust(self._columns_shown))
        self._columns_shown = len(text)

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
