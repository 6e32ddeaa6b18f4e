"""A log that knows how long its writer's callers waited for it, and else is the log it wraps."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rlt_fsm.log import EventLog
from rlt_fsm.log.port import EventCells, LogReader, LogWriter, RequestRow, RunHeader, StepRow


class TimedLog(EventLog):
    """Passes everything on to `log`; `seconds` is what calls of its writers took together."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.seconds = 0.0

    @property
    def name(self) -> str:
        """The log's."""
        return self._log.name

    def begin_run(self, header: RunHeader) -> LogWriter:
        """A new run, whose writer is timed."""
        return _TimedWriter(self, self._log.begin_run(header))

    def continue_run(self, run_id: int) -> LogWriter:
        """A run that goes on, whose writer is timed."""
        return _TimedWriter(self, self._log.continue_run(run_id))

    def reader(self) -> LogReader:
        """The log's."""
        return self._log.reader()

    def generation_lookup(self, run_id: int) -> Callable[[str], int] | None:
        """The log's."""
        return self._log.generation_lookup(run_id)

    def damage(self) -> str | None:
        """The log's."""
        return self._log.damage()

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time spent in here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began


class _TimedWriter(LogWriter):
    def __init__(self, log: TimedLog, writer: LogWriter) -> None:
        self._log = log
        self._writer = writer

    @property
    def run_id(self) -> int:
        return self._writer.run_id

    @property
    def durable_seq(self) -> int:
        return self._writer.durable_seq

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        with self._log.timed():
            self._writer.write(events, requests, steps)

    def commit(self) -> None:
        with self._log.timed():
            self._writer.commit()

    def commit_soon(self) -> bool:
        with self._log.timed():
            return self._writer.commit_soon()

    def conclude(self) -> None:
        with self._log.timed():
            self._writer.conclude()

    def end(self, outcome: str, ended_at: str) -> None:
        with self._log.timed():
            self._writer.end(outcome, ended_at)
