"""A log that knows how long its writer's callers waited for it, and else is the log it wraps."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlt_fsm.log import EventLog
from rlt_fsm.log.port import EventCells, LogWriter, RequestRow, RunHeader, StepRow
from rlt_fsm.log.wrapping import WrappedLog, WrappedWriter


class TimedLog(WrappedLog):
    """Passes everything on to `log`; `seconds` is what calls of its writers took together."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log)
        self.seconds = 0.0

    def begin_run(self, header: RunHeader) -> LogWriter:
        """A new run, whose writer is timed."""
        return _TimedWriter(self, self._log.begin_run(header))

    def continue_run(self, run_id: int) -> LogWriter:
        """A run that goes on, whose writer is timed."""
        return _TimedWriter(self, self._log.continue_run(run_id))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time spent in here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began


class _TimedWriter(WrappedWriter):
    def __init__(self, log: TimedLog, writer: LogWriter) -> None:
        super().__init__(writer)
        self._log = log

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        with self._log.timed():
            super().write(events, requests, steps)

    def commit(self) -> None:
        with self._log.timed():
            super().commit()

    def commit_soon(self) -> bool:
        with self._log.timed():
            return super().commit_soon()

    def conclude(self) -> None:
        with self._log.timed():
            super().conclude()

    def end(self, outcome: str, ended_at: str) -> None:
        with self._log.timed():
            super().end(outcome, ended_at)
