"""The one place that asks a clock. Times are for people: no decision reads them."""

import time
from datetime import UTC, datetime


def now_ns() -> int:
    """Monotonic nanoseconds; only differences mean anything."""
    return time.perf_counter_ns()


def wall_time() -> str:
    """The date and time now, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
