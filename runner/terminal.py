"""What the commands of `rlt-fsm` share on a terminal: log lines, and the seeds of a simulation.

Results are printed by the consoles (`console.py`, `simulate_console.py`), not here.
"""

import sys

import structlog

from rlt_fsm.command_output import has_colors
from rlt_fsm.errors import RltError
from rlt_fsm.oplog import Format, Settings, choose, renderer
from rlt_fsm.progress_line import ProgressLine


def log_as(settings: Settings, line: ProgressLine | None = None) -> None:
    """Take what the command line says of the operational log."""
    choose(settings)
    log_to_stderr(settings.level, line, form=settings.format)


def log_to_stderr(
    level: str, line: ProgressLine | None = None, *, form: Format = Format.CONSOLE
) -> None:
    """Log lines of `level` and worse, one each: results are on stdout and in the event log.

    A progress line makes room for them. They are coloured on a terminal, unless NO_COLOR is set.
    """

    def make_room(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if line is not None:
            line.clear()
        return event

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _error_in_one_line,
            make_room,
            *renderer(form, has_colors=has_colors(sys.stderr)),
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
