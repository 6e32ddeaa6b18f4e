"""A log that tells somebody of every row that is written to it, and else is the log it wraps."""

from collections.abc import Callable, Sequence

from .event_log import EventLog
from .port import EventCells, LogWriter, RequestRow, RunHeader, StepRow
from .wrapping import WrappedLog, WrappedWriter

RunKey = tuple[str, int]  # when it was started, its number: a log's name may be used again

# (the log, run, its new events, its steps that ended)
Written = Callable[[EventLog, RunKey, Sequence[EventCells], Sequence[StepRow]], None]
# (the log, a run that goes on): called before anything more is written to it
Begun = Callable[[EventLog, int], None]


class CountingLog(WrappedLog):
    """Passes everything on to `log`, and tells of what is written."""

    def __init__(self, log: EventLog, *, begun: Begun, written: Written) -> None:
        super().__init__(log)
        self._begun = begun
        self._written = written

    def begin_run(self, header: RunHeader) -> LogWriter:
        """A new run, of which every row is told."""
        writer = self._log.begin_run(header)
        return _Writer(self._log, writer, header.started_at, self._written)

    def continue_run(self, run_id: int) -> LogWriter:
        """A run that goes on: told of as it stands, then row by row."""
        writer = self._log.continue_run(run_id)
        self._begun(self._log, run_id)
        runs = self._log.reader().runs()
        (started_at,) = [info.started_at for info in runs if info.run_id == run_id]
        return _Writer(self._log, writer, started_at, self._written)


class _Writer(WrappedWriter):
    def __init__(self, log: EventLog, writer: LogWriter, started_at: str, written: Written) -> None:
        super().__init__(writer)
        self._log = log
        self._key = (started_at, writer.run_id)
        self._written = written

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        super().write(events, requests, steps)
        self._written(self._log, self._key, events, steps)
