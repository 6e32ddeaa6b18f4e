"""What a status line tells of a long run: how far it is, how fast, and who waits."""

import time
from collections.abc import Callable

from rlt_fsm.engine import Engine
from rlt_fsm.moves import PLAIN_MOVE
from rlt_fsm.progress_line import Count, ProgressLine, bar_of, duration
from rlt_fsm.wording import counted

_OUTPUT = PLAIN_MOVE["output"]


class RunStatus:
    """Called after steps with (steps taken, requests ended); reads the engine, changes nothing.

    Where nobody watches, a call costs nothing.
    """

    def __init__(
        self,
        line: ProgressLine,
        engine: Engine,
        requests: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._engine = engine
        self._requests = requests
        self._clock = clock
        self._started = clock()
        self._seen_seq = self._tokens = 0

    def __call__(self, steps: int, ended: int) -> None:
        """Count the step's tokens, and show them if it is time."""
        if not self._line.is_watched:
            return
        rows = self._engine.last_events
        if rows and rows[0][0] > self._seen_seq:
            self._seen_seq = rows[-1][0]
            self._tokens += sum(row[5] == _OUTPUT for row in rows)
        if self._line.is_due:
            self._line.show(self._text(steps, ended))

    def _text(self, steps: int, ended: int) -> str:
        state = self._engine.state
        seconds = max(self._clock() - self._started, 1e-9)
        parts = [
            f"{bar_of(ended, self._requests)} {ended:,} of {counted(self._requests, 'request')}",
            f"{state.slots_held:,} running",
            f"{len(state.waiting):,} waiting",
            f"{counted(self._tokens, 'token')} ({self._tokens / seconds:,.0f}/s)",
            f"step {steps:,}",
        ]
        if 0 < ended < self._requests:
            parts.append(f"{duration(seconds / ended * (self._requests - ended))} left")
        return ", ".join(parts)


def audit_progress(line: ProgressLine) -> Count:
    """Tells (events read, all events) of an audit on a line."""

    def tell(read: int, events: int) -> None:
        line.count(read, events, "audited", "event")

    return tell
