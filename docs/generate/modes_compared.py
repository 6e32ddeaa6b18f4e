"""The three modes side by side on five seeded workloads, counted on SimRunner: no clock is read."""

from collections import Counter
from functools import cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from rlt_fsm import CacheConfig, Engine, EngineConfig, ExecutionConfig, SamplingParams
from rlt_fsm.config import Mode, SchedulerConfig
from rlt_fsm.counter_hash import draw, key_of
from rlt_fsm.drive import drive
from rlt_fsm.policies import POLICIES
from rlt_fsm.states import WorkKey
from rlt_fsm.workload import FORMAT, Request, Workload
from runner.sim import SimRunner

from .markdown import Block, code, table

DEPTHS: Final = 4
MAX_MODEL_LEN: Final = 512
CONFIG: Final = EngineConfig(
    scheduler=SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=128, prefill_chunk_size=64),
    execution=ExecutionConfig(atomic_prefill=False),
)
TIGHT: Final = replace(
    CONFIG,
    scheduler=replace(CONFIG.scheduler, policy="priority", enable_preemption=True),
    cache=CacheConfig(num_blocks=4 * 40, block_size=16, incremental_allocation=True),
)


class Mix(NamedTuple):
    """How to draw a workload; ranges are inclusive. `every` steps apart one request arrives."""

    about: str
    requests: int
    every: int
    prompt: tuple[int, int]
    outputs: tuple[int, int]
    threshold: float
    config: EngineConfig = CONFIG


MIXES: Final = {
    "chat": Mix("steady arrivals, mixed lengths", 64, 6, (16, 96), (8, 48), 0.5),
    "burst": Mix("everybody at step 0", 48, 0, (8, 32), (16, 32), 0.5),
    "long-prompts": Mix("long prompts, few outputs", 32, 8, (128, 384), (4, 8), 0.5),
    "full-depth": Mix("as chat, no early exits", 64, 6, (16, 96), (8, 48), 1.0),
    "tight-pool": Mix(
        "as chat in a quarter of the memory, three priorities, preemption",
        64, 6, (16, 96), (8, 48), 0.5, TIGHT,
    ),
}  # fmt: skip


class Counts(NamedTuple):
    """What one run came to; means over batches of a kind."""

    steps: int
    tokens_per_step: float
    loop_rows: float
    prompt_tokens: float
    shared_batches: int
    first_output: float
    preemptions: int


def workload(name: str, mode: Mode) -> Workload:
    """The same requests for every mode."""
    mix = MIXES[name]
    key = key_of("docs/modes", 0, tuple(name.encode()))

    def pick(number: int, low: int, high: int) -> int:
        return low + draw(key, number) % (high - low + 1)

    requests = tuple(
        Request(
            id=f"r{i}",
            at=i * mix.every,
            prompt_len=pick(3 * i, *mix.prompt),
            params=SamplingParams(
                max_tokens=pick(3 * i + 1, *mix.outputs),
                exit_threshold=mix.threshold,
                seed=i,
                priority=pick(3 * i + 2, 0, 2),
            ),
        )
        for i in range(mix.requests)
    )
    config = replace(mix.config, scheduler=replace(mix.config.scheduler, mode=mode))
    return Workload(
        format=FORMAT, name=name, max_model_len=MAX_MODEL_LEN, config=config, requests=requests
    )


@cache
def run(name: str, mode: Mode) -> Counts:
    """Drive one workload in one mode and count."""
    load = workload(name, mode)
    batches: Counter[str] = Counter()
    first: dict[int, int] = {}
    with Engine(SimRunner(depths=DEPTHS, max_model_len=MAX_MODEL_LEN), load.config) as engine:

        def look(_steps: int, _ended: int) -> None:
            schedule = engine.last_schedule
            assert schedule is not None
            batch = schedule.batch
            if batch is None:
                return
            kinds = Counter(row.work for row in batch.rows)
            if loops := kinds[WorkKey.DECODE_RECURRENT]:
                batches.update(loops=1, loop_rows=loops)
            prompt_tokens = sum(r.token_count for r in batch.rows if r.work.startswith("PROMPT"))
            if prompt_tokens:
                batches.update(prompts=1, prompt_tokens=prompt_tokens)
            batches.update(shared=len(kinds) > 1)
            for row in batch.rows:
                if row.work is WorkKey.DECODE_CODA:
                    first.setdefault(int(row.spec.request_id[1:]), schedule.step)

        result = drive(engine, load, on_step=look)
    assert not result.cut_off, f"{name} drains in {mode}"
    tokens = sum(len(request.token_ids) for request in result.requests)
    waits = [first[i] - request.at for i, request in enumerate(load.requests)]
    return Counts(
        steps=result.steps,
        tokens_per_step=tokens / result.steps,
        loop_rows=batches["loop_rows"] / batches["loops"],
        prompt_tokens=batches["prompt_tokens"] / batches["prompts"],
        shared_batches=batches["shared"],
        first_output=sum(waits) / len(waits),
        preemptions=result.preemptions,
    )


def _comparison() -> str:
    head = [
        "workload", "mode", "steps", "outputs per step", "rows of a decode loop",
        "tokens of a prompt batch", "shared batches", "steps to first output", "preemptions",
    ]  # fmt: skip
    rows = []
    for name in MIXES:
        for mode in POLICIES:
            c = run(name, mode)
            rows.append(
                [
                    name, code(mode), f"{c.steps:,}", f"{c.tokens_per_step:.3f}",
                    f"{c.loop_rows:.1f}", f"{c.prompt_tokens:.1f}", f"{c.shared_batches:,}",
                    f"{c.first_output:.0f}", c.preemptions,
                ]
            )  # fmt: skip
    return table(head, rows, numbers=range(2, len(head)))


def _workloads() -> str:
    head = ["workload", "", "requests", "one every", "prompt", "outputs", "exit threshold"]
    rows = [
        [
            name, mix.about, mix.requests, f"{mix.every} steps" if mix.every else "at once",
            f"{mix.prompt[0]} to {mix.prompt[1]}", f"{mix.outputs[0]} to {mix.outputs[1]}",
            mix.threshold,
        ]
        for name, mix in MIXES.items()
    ]  # fmt: skip
    return table(head, rows)


BLOCKS: dict[str, Block] = {"mode-workloads": _workloads, "mode-comparison": _comparison}
