"""What scheduling costs where memory is short: the same requests in a large and in a small pool.

Four requests for each seat, 64 arriving at every step, of three priorities; blocks are taken as
they are needed. In the small pool somebody is preempted in every second step, asynchronously twice
in each.
"""

import time
from typing import NamedTuple

from docs.generate.markdown import table
from rlt_fsm import Engine, EngineConfig, SamplingParams
from rlt_fsm.config import CacheConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.moves import MOVES

from .bench_runs import BLOCK_SIZE, DEPTHS, PROMPT_TOKENS, NullLog, TimedRunner, median

ARRIVALS = 64  # at every step
SMALL = 0.35  # of what all seats would need
_PREEMPTIONS = frozenset(
    number for number, move in enumerate(MOVES) if move.trigger in {"yield", "offload", "rewind"}
)


class Size(NamedTuple):
    """How much to measure."""

    seats: int = 1024
    outputs: int = 64
    repeats: int = 3


QUICK = Size(seats=16, outputs=24, repeats=1)


class Timing(NamedTuple):
    """One run; `cpu_seconds` are the engine's own, without the runner's and without a log."""

    cpu_seconds: float
    steps: int
    row_steps: int
    preemptions: int


def tables(size: Size) -> dict[str, str]:
    """The block of this file."""
    cases = [(is_async, share) for is_async in (False, True) for share in (1.0, SMALL)]
    timings: dict[tuple[bool, float], list[Timing]] = {case: [] for case in cases}
    for _ in range(size.repeats):
        for is_async, share in cases:
            timings[is_async, share].append(run(size, share=share, is_async=is_async))
    head = ["engine", "large pool", "small pool", "small vs large", "steps", "preemptions"]
    rows = []
    for is_async in (False, True):
        large, small = (_us_per_row(timings[is_async, share]) for share in (1.0, SMALL))
        one = timings[is_async, SMALL][0]
        figures = [f"{large:.1f}", f"{small:.1f}", f"{small / large:.2f}"]
        counts = [f"{one.steps:,}", f"{one.preemptions:,}"]
        rows.append(["asynchronous" if is_async else "synchronous", *figures, *counts])
    return {"preemption": table(head, rows, numbers=range(1, len(head)))}


def _us_per_row(timings: list[Timing]) -> float:
    return median(1e6 * timing.cpu_seconds / timing.row_steps for timing in timings)


def run(size: Size, *, share: float, is_async: bool) -> Timing:
    """Serve all requests with this share of the blocks that full seats would need at most."""
    capacity = PROMPT_TOKENS + size.outputs
    blocks = -(-capacity // BLOCK_SIZE) * DEPTHS
    config = EngineConfig(
        scheduler=SchedulerConfig(
            max_num_seqs=size.seats,
            max_num_batched_tokens=size.seats * PROMPT_TOKENS,
            policy="priority",
            enable_preemption=True,
        ),
        cache=CacheConfig(
            num_blocks=int(size.seats * share) * blocks,
            block_size=BLOCK_SIZE,
            incremental_allocation=True,
        ),
        execution=ExecutionConfig(async_scheduling=is_async),
    )
    runner = TimedRunner(depths=DEPTHS, max_model_len=capacity, check=False)
    row_steps = preemptions = 0
    started = time.process_time()
    engine = Engine(runner, config, NullLog())
    left = list(range(4 * size.seats))
    while left or engine.has_unfinished_requests():
        for number in left[:ARRIVALS]:
            engine.add_request(str(number), range(1, PROMPT_TOKENS + 1), _params(number, size))
        del left[:ARRIVALS]
        engine.step()
        schedule = engine.last_schedule
        if schedule is not None and schedule.batch is not None:
            row_steps += len(schedule.batch.rows)
        preemptions += sum(row[5] in _PREEMPTIONS for row in engine.last_events)
    engine.close()
    cpu_seconds = time.process_time() - started - runner.cpu_seconds
    return Timing(cpu_seconds, engine.current_step, row_steps, preemptions)


def _params(number: int, size: Size) -> SamplingParams:
    half = size.outputs // 2
    return SamplingParams(
        max_tokens=half + number * 37 % half,
        exit_threshold=0.5,
        ignore_eos=True,
        seed=number,
        priority=number % 3,
    )
