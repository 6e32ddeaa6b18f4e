"""The operational log: what a person on call reads. The event log is the record, not this.

Lines tell of a run's start and end, refusals, degraded modes, slow steps and failures, never of
single rows; they carry run_id, and step and request_id where they apply. A host that configured
structlog gets them through its own set-up. Where nobody did, they go to standard error as the
environment says: by default warnings and worse, so that a library never prints on its own.

    RLT_FSM_LOG_LEVEL     debug, info, warning, error or critical
    RLT_FSM_LOG_FORMAT    console, for people; json, one object a line
    RLT_FSM_SLOW_STEP_MS  a step that takes as long is told of
"""

import math
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self, TypeVar

import msgspec
import structlog

from .batch import Batch
from .clock import now_ns
from .errors import ConfigError

E = TypeVar("E", bound=StrEnum)
Processors = list[structlog.typing.Processor]

LEVEL: Final = "RLT_FSM_LOG_LEVEL"
FORMAT: Final = "RLT_FSM_LOG_FORMAT"
SLOW_STEP_MS: Final = "RLT_FSM_SLOW_STEP_MS"


class Level(StrEnum):
    """From which level on there are lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Format(StrEnum):
    """How lines look."""

    CONSOLE = "console"
    JSON = "json"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is told and how; `slow_step_ms` in milliseconds."""

    level: Level = Level.WARNING
    format: Format = Format.CONSOLE
    slow_step_ms: float = 5000

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """What the environment asks for.

        Raises:
            ConfigError: a variable holds something else.
        """
        default = cls()
        return cls(
            level=_named(environment, LEVEL, default.level),
            format=_named(environment, FORMAT, default.format),
            slow_step_ms=_milliseconds(environment, default.slow_step_ms),
        )


def _named(environment: Mapping[str, str], variable: str, default: E) -> E:
    text = environment.get(variable)
    if not text:
        return default
    kind = type(default)
    try:
        return kind(text.lower())
    except ValueError:
        raise ConfigError(f"{variable}={text}: must be one of {', '.join(kind)}") from None


def _milliseconds(environment: Mapping[str, str], default: float) -> float:
    text = environment.get(SLOW_STEP_MS)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise ConfigError(f"{SLOW_STEP_MS}={text}: must be a number of milliseconds, 0 or more")
    return value


_chosen: list[Settings] = []  # by a command line, over the environment; one at most


def choose(settings: Settings) -> None:
    """Take these settings for this process, whatever the environment says."""
    _chosen[:] = [settings]


def settings() -> Settings:
    """What holds now: what was chosen, or else what the environment asks for.

    Raises:
        ConfigError: a variable of the environment is not understood.
    """
    return _chosen[0] if _chosen else Settings.of(os.environ)


# ---- lines -----------------------------------------------------------------------------------


def renderer(form: Format, *, has_colors: bool = False) -> Processors:
    """The last processors of a chain: a line for people, or an object for machines."""
    if form == Format.JSON:
        return [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    return [
        structlog.dev.ConsoleRenderer(
            colors=has_colors, exception_formatter=structlog.dev.plain_traceback
        )
    ]


def logger(**bound: object) -> structlog.typing.FilteringBoundLogger:
    """A logger with `bound` on every line (run_id, request_id …).

    Raises:
        ConfigError: a variable of the environment is not understood.
    """
    found: structlog.typing.FilteringBoundLogger
    if structlog.is_configured():
        found = structlog.get_logger()
    else:
        wanted = settings()
        times: Processors = []
        if wanted.format == Format.CONSOLE:
            times.append(structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False))
        found = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[structlog.processors.add_log_level, *times, *renderer(wanted.format)],
            wrapper_class=structlog.make_filtering_bound_logger(wanted.level),
        )
    bound_logger: structlog.typing.FilteringBoundLogger = found.bind(**bound)
    return bound_logger


class SlowSteps:
    """Tells of steps that took as long as the settings say, or longer."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log = log
        self._threshold_ns = settings().slow_step_ms * 1e6
        self._began_ns = 0

    def begin(self) -> None:
        """A step begins."""
        self._began_ns = now_ns()

    def end(self, step: int, batch: Batch | None) -> None:
        """It has ended; `batch` is what it submitted."""
        took_ns = now_ns() - self._began_ns
        if took_ns < self._threshold_ns:
            return
        told: dict[str, object] = {"step": step, "ms": round(took_ns / 1e6)}
        if batch is not None:
            told |= {"ticket": batch.ticket, "operation": batch.operation, "rows": len(batch.rows)}
        self._log.warning("slow step", **told)
