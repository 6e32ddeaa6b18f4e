"""Runs that a benchmark measures, and how: interleaved repeats, medians, the time through close().

Nothing here passes or fails; `python -m tests.benchmarks` runs it, and `test_benchmarks_run.py` a
small version of it, so that it does not rot.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rlt_fsm import Engine, EngineConfig, EventLog, SamplingParams
from rlt_fsm.batch import Batch, BatchResult
from rlt_fsm.config import CacheConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.log.port import EventCells, LogReader, LogWriter, RequestRow, RunHeader, StepRow
from runner.sim import SimRunner

PROMPT_TOKENS = 8
DEPTHS = 4
BLOCK_SIZE = 16


class NullWriter(LogWriter):
    """Throws every row away."""

    run_id = 1
    durable_seq = sys.maxsize

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        """Nothing."""

    def commit(self) -> None:
        """Nothing."""

    def end(self, outcome: str, ended_at: str) -> None:
        """Nothing."""


class NullLog(EventLog):
    """A log that keeps nothing: what is left is the engine."""

    name = "off"

    def begin_run(self, header: RunHeader) -> NullWriter:
        """What throws rows away."""
        del header
        return NullWriter()

    def reader(self) -> LogReader:
        """There is nothing to read."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing."""


class TimedRunner(SimRunner):
    """SimRunner that says how much CPU time it took itself, so that the engine's share is known."""

    cpu_seconds = 0.0

    def submit(self, batch: Batch) -> None:
        """See SimRunner."""
        started = time.process_time()
        super().submit(batch)
        self.cpu_seconds += time.process_time() - started

    def collect(self) -> list[BatchResult]:
        """See SimRunner."""
        started = time.process_time()
        results = super().collect()
        self.cpu_seconds += time.process_time() - started
        return results


Case = tuple[object, ...]
Measured = TypeVar("Measured")


class Timing(NamedTuple):
    """One run. `seconds` have passed for all of it; `cpu_seconds` are the CPU time of the engine
    and its log, on whatever thread, the runner's own taken out: what others do counts less.
    """

    seconds: float
    cpu_seconds: float
    batches: int
    row_steps: int
    events: int


def run(
    log: EventLog,
    *,
    rows: int,
    outputs: int,
    requests: int | None = None,
    verdicts: bool = True,
    is_async: bool = False,
    exit_threshold: float = 1.0,
) -> Timing:
    """`requests` requests (default: one for each of `rows` slots) in lockstep at full depth; below
    a threshold of 1 each leaves its loops on its own.

    An output at full depth takes a prelude, DEPTHS loops and a coda: six row-steps.
    """
    requests = rows if requests is None else requests
    capacity = PROMPT_TOKENS + outputs
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=rows, max_num_batched_tokens=rows * PROMPT_TOKENS),
        cache=CacheConfig(
            num_blocks=-(-capacity // BLOCK_SIZE) * DEPTHS * rows, block_size=BLOCK_SIZE
        ),
        execution=ExecutionConfig(async_scheduling=is_async),
    )
    runner = TimedRunner(depths=DEPTHS, max_model_len=capacity, check=False)
    prompt = list(range(1, PROMPT_TOKENS + 1))
    row_steps = batches = 0
    started, cpu_started = time.perf_counter(), time.process_time()
    engine = Engine(runner, config, log, verdicts=verdicts)
    for number in range(requests):
        params = SamplingParams(max_tokens=outputs, exit_threshold=exit_threshold, seed=number)
        engine.add_request(str(number), prompt, params)
    while engine.has_unfinished_requests():
        engine.step()
        schedule = engine.last_schedule
        if schedule is not None and schedule.batch is not None:  # else it waits for results
            row_steps += len(schedule.batch.rows)
            batches += 1
    engine.close()
    cpu_seconds = time.process_time() - cpu_started - runner.cpu_seconds
    seconds = time.perf_counter() - started
    return Timing(seconds, cpu_seconds, batches, row_steps, engine.state.seq)


class Logs:
    """The logs under comparison, each time a new one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def open(self, kind: str) -> EventLog:
        """A fresh log: off, memory or sqlite."""
        if kind == "off":
            return NullLog()
        if kind == "memory":
            return EventLog.memory()
        self._made += 1
        return EventLog.open(self._folder / f"bench{self._made}.db")


def interleaved(
    cases: Iterable[Case], measure: Callable[..., Measured], repeats: int
) -> dict[Case, list[Measured]]:
    """Every case once, then every case again …: a slow minute hits all alike."""
    cases = list(cases)
    results: dict[Case, list[Measured]] = {case: [] for case in cases}
    for _ in range(repeats):
        for case in cases:
            results[case].append(measure(*case))
    return results


def median(values: Iterable[float]) -> float:
    """The middle value."""
    return statistics.median(values)
