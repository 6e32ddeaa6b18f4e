"""What the commands share on a terminal: exit statuses, mistakes as sentences, log lines.

Results are printed by the consoles (`console.py`, `simulate_console.py`), not here. Exit status:
0 all well; 1 a finding, a failed expectation or a failing seed; 2 usage or unusable input; 3 the
audit is inconclusive.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import typer

from rlt_fsm.errors import ConfigError, RltError

OK, NO, USAGE, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 130
SHOW_PROGRESS_AFTER_S = 2.0
_REFRESH_S = 0.1


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


def log_to_stderr(level: str) -> None:
    """Log lines of `level` and worse, one each: results are on stdout and in the event log."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _error_in_one_line,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
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


def setting_pairs(settings: list[str]) -> dict[str, str]:
    """`SECTION.FIELD=VALUE` texts as a mapping.

    Raises:
        ConfigError: a text of another form.
    """
    pairs = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be SECTION.FIELD=VALUE")
        pairs[path.strip()] = value.strip()
    return pairs


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
    """A line on stderr for a person who waits; silent elsewhere and in the first seconds."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._started = self._shown_at = time.monotonic()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show where things are, ten times a second at most."""
        if not self._is_watched:
            return
        now = time.monotonic()
        if now - self._started < SHOW_PROGRESS_AFTER_S or now - self._shown_at < _REFRESH_S:
            return
        self._shown_at, self._is_shown = now, True
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False
