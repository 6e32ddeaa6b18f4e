"""Counters, gauges and histograms of runs, counted from the rows that their logs are made of.

Two ways to feed them, with the same result; where neither is used, an engine pays nothing:

    metrics = Metrics()
    Engine(runner, config, metrics.counting(log))    # in the engine's process, as rows are written
    metrics.read(EventLog.open_for_reading(path))    # in any other, what was committed since

`snapshot` may be called from any thread. What Prometheus sees of it is in `prometheus.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from .counts import SECONDS, Counts, Run, Tally, handlers
from .log.counting import CountingLog, RunKey
from .log.event_log import EventLog
from .log.move_rows import MOVE_ROWS
from .log.port import EventCells, EventStore, LogReader, StepRow
from .oplog import logger

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
    """Everything as it stood at one moment. Gauges are sums over the runs that go on.

    A run without an end goes on until there is a newer one in its log, unless it is still written.
    """

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
        self._files: dict[str, dict[RunKey, Run]] = {}  # by name: a file may be opened again
        self._logs: WeakKeyDictionary[EventStore, dict[RunKey, Run]] = WeakKeyDictionary()
        self._counts = Counts()

    # ---- feeding -----------------------------------------------------------------------------

    def counting(self, log: EventLog) -> EventLog:
        """The same log; what is written through it is counted. Closing it closes `log`.

        A run that goes on after a crash is counted from its beginning.
        """
        return CountingLog(log, begun=self.read, written=self._written)

    def read(self, log: EventStore, run_id: int | None = None) -> None:
        """Count what was committed since this was last called.

        That is what was committed to one run; or, if None, to the newest, to those that were
        counted before and have no end, and to those that came after them. Of events that were
        archived meanwhile the counters know nothing, and the operational log says so once for a
        run.

        Raises:
            LogError: the log cannot be read.
        """
        reader = log.reader()
        keys = {info.run_id: (info.started_at, info.run_id) for info in reader.runs()}
        if not keys or run_id not in (None, *keys):
            return
        newest = max(keys)
        with self._lock:
            known = self._known(log)
            counted = {n for n, key in keys.items() if key in known}
            over = {n for n in counted if known[keys[n]].is_over}
            since = {n for n in keys if n > max(counted, default=newest)}
            for key, run in known.items():
                if keys.get(key[1]) != key:
                    run.is_left = True  # its file was replaced
            wanted = (counted - over) | since | {newest} if run_id is None else {run_id}
            for number in sorted(wanted):
                is_new = keys[number] not in known
                run = self._run(log, keys[number])
                has_more = self._read(log.name, reader, number, run)
                run.is_left = number < newest and (is_new or not has_more)

    def _read(self, name: str, reader: LogReader, run_id: int, run: Run) -> bool:
        """Count what is new of a run; whether anything was."""
        seen_seq = run.seen_seq
        newest = -1 if run.step is None else run.step.step
        steps = [StepRow(*row) for row in reader.steps(run_id, newest)]
        events = self._events(name, reader, run_id, run)
        self._counts.take(run, events, handlers(reader.moves(run_id)))
        self._counts.end_steps(run, steps)
        return run.seen_seq > seen_seq

    def _events(self, name: str, reader: LogReader, run_id: int, run: Run) -> Iterator[EventCells]:
        """What was not seen yet, without what was archived; the run begins after that."""
        while True:
            events = reader.events(run_id, run.seen_seq)  # asked first: no archiving in between
            begins = reader.checkpoint(run_id)
            if begins is None or begins.seq <= run.seen_seq:
                return events
            if run.seen_seq and not run.is_cut:
                run.is_cut = True
                logger(run_id=run_id).warning(
                    "metrics lack events that were archived before they were read",
                    log=name, first_seq=run.seen_seq + 1, last_seq=begins.seq,
                )  # fmt: skip
            run.begin_after(begins)

    def _written(
        self,
        log: EventStore,
        key: RunKey,
        rows: Sequence[EventCells],
        steps: Sequence[StepRow],
    ) -> None:
        with self._lock:
            run = self._run(log, key)
            run.is_left = False
            self._counts.take(run, rows, _OURS)
            self._counts.end_steps(run, steps)

    def _known(self, log: EventStore) -> dict[RunKey, Run]:
        """The runs of a log. One in memory is known as an object, and not kept alive."""
        if log.name == ":memory:":
            return self._logs.setdefault(log, {})
        return self._files.setdefault(log.name, {})

    def _run(self, log: EventStore, key: RunKey) -> Run:
        """A run of a log; the ones before a new one are left by it."""
        known = self._known(log)
        if key not in known:
            for other, run in known.items():
                run.is_left = run.is_left or other < key
            known[key] = Run()
        return known[key]

    # ---- looking -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything as it stands now."""
        with self._lock:
            counts = self._counts
            logs = chain(self._files.values(), list(self._logs.values()))
            runs = [run for known in logs for run in known.values() if run.goes_on]
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
