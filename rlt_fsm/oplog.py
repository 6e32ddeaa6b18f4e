"""The operational log: what a person on call reads. The event log is the record, not this.

A host that configured structlog gets our lines through its own set-up. Where nobody did, warnings
and worse go to standard error and the rest is silent, so that a library never prints on its own.
"""

import sys

import structlog

_DEFAULT_PROCESSORS: list[structlog.typing.Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
]


def logger(**bound: object) -> structlog.typing.FilteringBoundLogger:
    """A logger with `bound` on every line (run_id, request_id …)."""
    found: structlog.typing.FilteringBoundLogger
    if structlog.is_configured():
        found = structlog.get_logger()
    else:
        found = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=_DEFAULT_PROCESSORS,
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
        )
    bound_logger: structlog.typing.FilteringBoundLogger = found.bind(**bound)
    return bound_logger
