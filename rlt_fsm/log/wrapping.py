"""A log around another one: what passes everything on, for adapters that look at what passes."""

from collections.abc import Callable, Sequence

from .event_log import EventLog
from .port import EventCells, LogReader, LogWriter, RequestRow, StepRow


class WrappedLog(EventLog):
    """Is `log` in all but its writers, which whoever derives from this makes."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    @property
    def name(self) -> str:
        """The log's."""
        return self._log.name

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


class WrappedWriter(LogWriter):
    """Is `writer` in all that is not overridden."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    @property
    def run_id(self) -> int:
        """The writer's."""
        return self._writer.run_id

    @property
    def durable_seq(self) -> int:
        """The writer's."""
        return self._writer.durable_seq

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        """Have the writer append rows."""
        self._writer.write(events, requests, steps)

    def commit(self) -> None:
        """Have the writer make everything durable."""
        self._writer.commit()

    def commit_soon(self) -> bool:
        """Have the writer begin to."""
        return self._writer.commit_soon()

    def conclude(self) -> None:
        """Wait for what it began."""
        self._writer.conclude()

    def end(self, outcome: str, ended_at: str) -> None:
        """Have the writer end the run."""
        self._writer.end(outcome, ended_at)
