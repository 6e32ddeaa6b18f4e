"""The engine's arms: one list of requests served, timed step by step, and checked.

Steady: from the step in which the 2W-th request ends to the last batch with prompt rows. The time
of prompts is taken out: what the device spent on their batches in the window; synchronously, and on
a CPU, what their steps took.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from rlt_fsm.config import (
    EngineConfig,
    ExecutionConfig,
    ExitConfig,
    Mode,
    SchedulerConfig,
)
from rlt_fsm.engine import Engine
from rlt_fsm.log import EventLog
from rlt_fsm.params import SamplingParams
from rlt_fsm.states import WorkKey
from runner.loading import LoadedModel
from runner.simulate_check import Failure
from runner.torch_runner import TorchRunner

from .device_time import WatchedRunner
from .jobs import Job
from .log_time import TimedLog
from .plan import IN_FLIGHT

PROMPT_WORKS: Final = frozenset(
    {WorkKey.PROMPT_ATOMIC, WorkKey.PROMPT_PRELUDE, WorkKey.PROMPT_RECURRENT}
)
PREFILL_TOKENS: Final = 2048
Judge = Callable[[EventLog], Sequence[Failure]]


class Step(NamedTuple):
    """One engine step, in seconds of the host's clock, and the ticket of its batch."""

    ticket: int | None
    seconds: float
    prompt_tokens: int
    outputs: int
    depths: int  # sum over the outputs
    contexts: int  # the same, positions behind each output
    ended: int


class Served(NamedTuple):
    """What one run of an arm came to. `idle_share`: of the steady window, by the device's clock;
    None where it has none. `log_seconds`: what of all `seconds` the engine's thread spent in the
    log's writer. Steady figures are 0 where there was no window: too few requests.
    """

    seconds: float
    tokens: int
    steady_tokens_per_second: float
    steady_outputs: int
    steady_prompt_seconds: float
    mean_depth: float
    mean_context: float
    idle_share: float | None
    log_seconds: float | None
    steps: int
    problems: tuple[str, ...]


def arm_config(
    width: int,
    *,
    mode: Mode,
    is_cuda: bool,
    is_async: bool,
    has_log: bool,
    in_step: bool = False,
    in_flight: int = IN_FLIGHT,
) -> EngineConfig:
    """The configuration of an arm: forced depths, the gate computed and read back.

    `in_step`: a coda waits until every row has one, so that requests of one depth stay in step.
    """
    return EngineConfig(
        scheduler=SchedulerConfig(
            mode=mode,
            max_num_seqs=width,
            max_num_batched_tokens=max(PREFILL_TOKENS, width),
            prefill_chunk_size=PREFILL_TOKENS,
            min_coda_batch_size=width if in_step else 1,
        ),
        execution=ExecutionConfig(
            cuda_graphs=is_cuda,
            async_scheduling=is_async,
            max_in_flight=in_flight,
            durability="group" if has_log else "off",
        ),
        exit=ExitConfig(mode="trace"),
    )


def serve(
    loaded: LoadedModel, jobs: Sequence[Job], config: EngineConfig, db: Path | None, judge: Judge
) -> Served:
    """Run every job through an engine; with a log it is audited afterwards."""
    log = TimedLog(EventLog.memory() if db is None else EventLog.open(db))
    try:
        runner = WatchedRunner(loaded, max_model_len=max(job.tokens for job in jobs))
        steps, ends, log_seconds = _run(runner, jobs, config, log)
        problems = _problems(jobs, ends)
        if db is not None:
            problems += [f"audit {found.kind}: {found.message}" for found in judge(log)]
    finally:
        log.close()
    return _measured(steps, runner, config, None if db is None else log_seconds, problems)


def _run(
    runner: TorchRunner, jobs: Sequence[Job], config: EngineConfig, log: TimedLog
) -> tuple[list[Step], dict[str, tuple[int, ...]], float]:
    steps: list[Step] = []
    ends: dict[str, tuple[int, ...]] = {}
    with Engine(runner, config, log) as engine:
        for i, job in enumerate(jobs):
            params = SamplingParams(
                max_tokens=len(job.depths), exit_depths=job.depths, ignore_eos=True
            )
            engine.add_request(str(i), job.prompt, params)
        before = log.seconds
        while engine.has_unfinished_requests():
            steps.append(_step(engine, ends))
        log_seconds = log.seconds - before
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return steps, ends, log_seconds


def _step(engine: Engine, ends: dict[str, tuple[int, ...]]) -> Step:
    begun = time.perf_counter()
    outputs = engine.step()
    seconds = time.perf_counter() - begun
    batch = engine.last_schedule.batch if engine.last_schedule is not None else None
    rows = batch.rows if batch is not None else ()
    ended = 0
    for output in outputs:
        if output.finished:
            ends[output.request_id] = tuple(output.exit_depths)
            ended += 1
    return Step(
        batch.ticket if batch is not None else None,
        seconds,
        sum(row.token_count for row in rows if row.work in PROMPT_WORKS),
        len(outputs),
        sum(output.exit_depths[-1] for output in outputs),
        sum(len(output.prompt_token_ids) + len(output.token_ids) - 1 for output in outputs),
        ended,
    )


def _problems(jobs: Sequence[Job], ends: dict[str, tuple[int, ...]]) -> list[str]:
    """Self-checks: every request ended with the depths of its trace, so with all its tokens."""
    wrong = [i for i, job in enumerate(jobs) if ends.get(str(i)) != job.depths]
    return [f"{len(wrong)} requests without the depths of their trace"] if wrong else []


def _measured(
    steps: Sequence[Step],
    runner: WatchedRunner,
    config: EngineConfig,
    log_seconds: float | None,
    problems: Sequence[str],
) -> Served:
    window = _steady(steps, config.scheduler.max_num_seqs)
    prompts = [step for step in window if step.prompt_tokens]
    times = runner.times({step.ticket for step in prompts if step.ticket is not None})
    if times is None or not config.execution.async_scheduling:
        prompt_seconds = sum(step.seconds for step in prompts)
    else:
        prompt_seconds = times.busy
    whole = runner.times({step.ticket for step in window if step.ticket is not None})
    decoding = sum(step.seconds for step in window) - prompt_seconds
    outputs = sum(step.outputs for step in window)
    return Served(
        seconds=sum(step.seconds for step in steps),
        tokens=sum(step.outputs for step in steps),
        steady_tokens_per_second=outputs / decoding if decoding > 0 else 0.0,
        steady_outputs=outputs,
        steady_prompt_seconds=prompt_seconds,
        mean_depth=sum(step.depths for step in window) / max(1, outputs),
        mean_context=sum(step.contexts for step in window) / max(1, outputs),
        idle_share=None if whole is None else whole.idle_share,
        log_seconds=log_seconds,
        steps=len(steps),
        problems=tuple(problems),
    )


def _steady(steps: Sequence[Step], width: int) -> Sequence[Step]:
    """The steps from the end of the 2W-th request to the last with prompt rows."""
    ended, first = 0, len(steps)
    for place, step in enumerate(steps):
        ended += step.ended
        if ended >= 2 * width:
            first = place + 1
            break
    last = max((place for place, step in enumerate(steps) if step.prompt_tokens), default=0)
    return steps[first:last]
