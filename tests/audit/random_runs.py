"""Random workloads on SimRunner: arrivals, id reuse, aborts, device failures, any mode."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from rlt_fsm import ConfigError, Engine, EventLog, RequestRefused, SamplingParams
from rlt_fsm.config import from_mapping, validate
from rlt_fsm.log.port import MoveRow
from rlt_fsm.workload import Completion
from runner.sim import SimRunner

MAX_STEPS = 5000


def foundation_config(random: Random) -> dict[str, dict[str, object]]:
    """Refill, first come first served, atomic prefill, full reservation."""
    return {
        "scheduler": {
            "max_num_seqs": random.choice([1, 2, 4]),
            "max_num_batched_tokens": random.choice([3, 6, 16]),
            "prefill_chunk_size": random.choice([2, 4, 8]),
            "min_coda_batch_size": random.choice([1, 2]),
        },
        "cache": {
            "num_blocks": random.choice([40, 64, 100]),
            "block_size": 2,
            "layout": random.choice(["last_exited", "shared"]),
        },
    }


def any_config(random: Random) -> dict[str, dict[str, object]]:
    """Everything that the scheduler can do; some combinations are refused."""
    config = foundation_config(random)
    config["scheduler"] |= {
        "mode": random.choice(["refill", "no_refill", "mixed"]),
        "policy": random.choice(["fcfs", "priority"]),
        "enable_preemption": random.random() < 0.6,
        "max_admission_bypasses": random.choice([1, 8]),
    }
    config["cache"] |= {
        "incremental_allocation": random.random() < 0.5,
        "enable_prefix_caching": random.random() < 0.3,
        "watermark_ratio": random.choice([0.0, 0.1]),
        "host_snapshot_blocks": random.choice([None, 0, 16]),
    }
    config["execution"] = {"atomic_prefill": random.random() < 0.5}
    if random.random() < 0.3:  # memory so tight that snapshots do not fit the host
        config["scheduler"] |= {"mode": "refill", "enable_preemption": True, "max_num_seqs": 4}
        config["scheduler"] |= {"policy": "priority"}
        config["cache"] |= {"num_blocks": 40, "incremental_allocation": True}
        config["cache"] |= {"host_snapshot_blocks": random.choice([0, 8]), "layout": "last_exited"}
    return config


def random_run(
    seed: int, *, whole_scheduler: bool, is_async: bool = False, log: EventLog | None = None
) -> EventLog | None:
    """Run one workload to its end; None where its config is refused."""
    random = Random(seed)
    config = (any_config if whole_scheduler else foundation_config)(random)
    completion = None
    if is_async:
        config.setdefault("execution", {}).update(async_scheduling=True, max_in_flight=1 + seed % 5)
        completion = Completion(order="random", seed=seed, max_delay=seed % 4)
    try:
        validate(from_mapping(config))
    except ConfigError:
        return None
    runner = SimRunner(completion=completion)
    log = EventLog.memory() if log is None else log
    with Engine(runner, from_mapping(config), log) as engine:
        _drive(engine, runner, random)
    return log


def seed_with(*kinds: str) -> int:
    """The first seed whose run has events of all these kinds: triggers, `enqueue:FROM>TO`."""
    for seed in range(1000):
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        reader = log.reader()
        moves = {row.move: row for row in reader.moves(1)}
        seen = {moves[event[5]] for event in reader.events(1)}
        names = {row.trigger for row in seen} | {_kind(row) for row in seen}
        if names.issuperset(kinds):
            return seed
    raise AssertionError(f"no run has {kinds}")


def _kind(row: MoveRow) -> str:
    keys = (str(state).partition(":")[2] for state in (row.work_from, row.work_to))
    return f"{row.trigger}:{'>'.join(keys)}"


def _drive(engine: Engine, runner: SimRunner, random: Random) -> None:
    to_come = random.randint(1, 10)
    common = [random.randint(1, 511) for _ in range(12)]
    for _ in range(MAX_STEPS):
        while to_come and random.random() < 0.4:
            to_come -= 1
            _add(engine, random, common)
        if random.random() < 0.06:
            engine.abort_request(f"r{random.randint(0, 6)}")
        if random.random() < 0.02:
            runner.fail_next()
        engine.step()
        if not to_come and not engine.has_unfinished_requests():
            break
    else:
        raise AssertionError(f"not drained after {MAX_STEPS} steps")
    if random.random() < 0.3:  # someone is live when the run is closed
        _add(engine, random, common)


def _add(engine: Engine, random: Random, common: list[int]) -> None:
    length = random.randint(1, 11)
    own = [random.randint(1, 511) for _ in range(length)]
    some_ids = tuple(random.sample(range(1, 512), 40))
    params = SamplingParams(
        max_tokens=random.randint(1, 6),
        exit_threshold=random.choice([1.0, 0.6, 0.3]),
        priority=random.randint(0, 2),
        seed=random.randint(0, 9),
        stop_token_ids=some_ids if random.random() < 0.2 else (),
        logprobs=random.choice([None, 0]),
        max_loops=random.choice([None, 3]),
    )
    prompt = common[:length] if random.random() < 0.5 else own
    with suppress(RequestRefused):
        engine.add_request(f"r{random.randint(0, 6)}", prompt, params)
