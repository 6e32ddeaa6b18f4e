"""Counters, gauges and histograms of runs, counted from the rows that their logs are made of.

Two ways to feed them, with the same result; where neither is used, an engine pays nothing:

    metrics = Metrics()
    Engine(runner, config, metrics.counting(log))    # in the engine's process, as rows are written
    metrics.read(EventLog.open_for_reading(path))    # in any other, what was committed since

`snapshot` may be called from any thread. What Prometheus sees of it is in `prometheus.py`.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

import msgspec

from .counts import SECONDS, Counts, Run, Tally, handlers
from .log.counting import CountingLog
from .log.event_log import EventLog
from .log.move_rows import MOVE_ROWS
from .log.port import EventCells, EventStore, StepRow

_OURS: Final = handlers(MOVE_ROWS)  # what is written has our moves


class Histogram(msgspec.Struct, frozen=True):
    """How often a value was at most each bound; `counts` has one more place, for larger ones."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float  # sum of the values

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything as it stood at one moment. Gauges are sums over the runs that go on."""

    events: int
    steps: int
    requests_submitted: int
    requests_finished: Mapping[str, int]  # by finish reason
    requests_refused: Mapping[str, int]  # by the reason's code
    outputs_by_exit_depth: Mapping[int, int]
    batches: Mapping[str, int]  # submitted, by operation
    batch_rows: Mapping[str, int]
    batch_tokens: Mapping[str, int]
    batches_failed: int
    preemptions: Mapping[str, int]  # by kind
    results_dropped: int
    seconds_to_first_output: Histogram
    seconds_between_outputs: Histogram
    seconds_to_finish: Histogram
    batch_seconds: Histogram  # from submission to completion
    requests_live: int  # gauges: from here on
    tickets_in_flight: int
    waiting: int
    slots_held: int
    blocks_free: int
    blocks_prefix_only: int
    host_blocks: int


class Metrics:
    """Counts runs. One object may count any number of engines and logs."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[tuple[str | EventStore, int], Run] = {}
        self._counts = Counts()

    # ---- feeding -----------------------------------------------------------------------------

    def counting(self, log: EventLog) -> EventLog:
        """The same log; what is written through it is counted. Closing it closes `log`.

        A run that goes on after a crash is counted from its beginning.
        """
        return CountingLog(log, begun=self.read, written=self._written)

    def read(self, log: EventStore, run_id: int | None = None) -> None:
        """Count what was committed to a run (the newest, if None) since this was last called.

        Raises:
            LogError: the log cannot be read.
        """
        reader = log.reader()
        if run_id is None:
            numbers = [info.run_id for info in reader.runs()]
            if not numbers:
                return
            run_id = max(numbers)
        with self._lock:
            run = self._run(log, run_id)
            newest = -1 if run.step is None else run.step.step
            steps = [StepRow(*row) for row in reader.steps(run_id, newest)]
            events = reader.events(run_id, run.seen_seq)
            self._counts.take(run, events, handlers(reader.moves(run_id)))
            self._counts.end_steps(run, steps)

    def _written(
        self, log: EventStore, run_id: int, rows: Sequence[EventCells], steps: Sequence[StepRow]
    ) -> None:
        with self._lock:
            run = self._run(log, run_id)
            self._counts.take(run, rows, _OURS)
            self._counts.end_steps(run, steps)

    def _run(self, log: EventStore, run_id: int) -> Run:
        """A file may be opened again and again; logs in memory are told apart as objects."""
        log_key = log if log.name == ":memory:" else log.name
        return self._runs.setdefault((log_key, run_id), Run())

    # ---- looking -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything as it stands now."""
        with self._lock:
            counts = self._counts
            runs = [run for run in self._runs.values() if not run.is_over]
            ends = [run.step for run in runs if run.step is not None]
            return Snapshot(
                events=counts.events,
                steps=counts.steps,
                requests_submitted=counts.submitted,
                requests_finished=dict(counts.finished),
                requests_refused=dict(counts.refused),
                outputs_by_exit_depth=dict(counts.depths),
                batches=dict(counts.batches),
                batch_rows=dict(counts.rows),
                batch_tokens=dict(counts.tokens),
                batches_failed=counts.failed,
                preemptions=dict(counts.preemptions),
                results_dropped=counts.dropped,
                seconds_to_first_output=_frozen(counts.first_output),
                seconds_between_outputs=_frozen(counts.between_outputs),
                seconds_to_finish=_frozen(counts.whole),
                batch_seconds=_frozen(counts.batch),
                requests_live=sum(len(run.submitted_ns) for run in runs),
                tickets_in_flight=sum(len(run.tickets_ns) for run in runs),
                waiting=sum(step.waiting for step in ends),
                slots_held=sum(step.slots_held for step in ends),
                blocks_free=sum(step.blocks_free for step in ends),
                blocks_prefix_only=sum(step.blocks_prefix_only for step in ends),
                host_blocks=sum(step.host_blocks for step in ends),
            )


def _frozen(tally: Tally) -> Histogram:
    return Histogram(SECONDS, tuple(tally.counts), tally.total)
