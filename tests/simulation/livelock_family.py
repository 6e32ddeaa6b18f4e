"""Random workloads of the shape that once livelocked (scenario F11), and the command for many.

Ten requests with prompts of 1 to 11 tokens, 1 to 6 outputs and priorities 0 to 2 on four seats, six
tokens per batch, chunks of four and few blocks, incremental, split, with preemption. The same under
fcfs, in mixed mode and with 24 to 64 blocks; each with no bound on the host, none allowed there,
and 16 blocks. The whole family takes some minutes:

    python tests/simulation/livelock_family.py 0:2000
"""

import sys
from functools import partial
from itertools import product
from multiprocessing import Pool
from typing import NamedTuple

import msgspec
import structlog
from judging import judge

from rlt_fsm.workload import FORMAT, Workload, parse
from runner.simulate import simulate
from runner.simulate_workloads import Dice

MAX_STEPS = 1_000


class Shape(NamedTuple):
    """One member of the family; `blocks` are drawn from [low, high]."""

    mode: str = "refill"
    policy: str = "priority"
    blocks: tuple[int, int] = (40, 40)
    host: int | None = None

    def __str__(self) -> str:
        low, high = self.blocks
        blocks = str(low) if low == high else f"{low} to {high}"
        return f"{self.mode} {self.policy}, {blocks} blocks, host {self.host}"


VARIANTS = ({}, {"policy": "fcfs"}, {"mode": "mixed"}, {"blocks": (24, 64)})
FAMILY = [Shape(**variant, host=host) for variant, host in product(VARIANTS, (None, 0, 16))]


def workload(seed: int, *, shape: Shape, max_steps: int = MAX_STEPS) -> Workload:
    """The workload of a seed; two shapes' differ in their configuration alone."""
    dice = Dice(seed)
    at = 0
    requests = []
    for i in range(10):
        at += dice.pick((0, 0, 1, 2, 5))
        requests.append(
            {
                "id": f"r{i}",
                "at": at,
                "prompt_len": dice.between(1, 11),
                "max_tokens": dice.between(1, 6),
                "priority": dice.between(0, 2),
                "params": {"exit_threshold": 0.6, "ignore_eos": True, "seed": i},
            }
        )
    config = {
        "scheduler": {
            "mode": shape.mode,
            "policy": shape.policy,
            "enable_preemption": True,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 6,
            "prefill_chunk_size": 4,
        },
        "cache": {
            "num_blocks": dice.between(*shape.blocks),
            "block_size": 2,
            "incremental_allocation": True,
            "host_snapshot_blocks": shape.host,
        },
        "execution": {"atomic_prefill": False},
    }
    made = {
        "format": FORMAT,
        "name": f"livelock-family-{seed}",
        "seed": seed,
        "max_model_len": 128,
        "config": config,
        "requests": requests,
        "expect": {"max_steps": max_steps},
    }
    return parse(msgspec.json.encode(made))


def of_shape(shape: Shape, seed: int, *, max_steps: int) -> Workload:
    return workload(seed, shape=shape, max_steps=max_steps)


def run(shape: Shape, seeds: range):
    """Put the workloads of some seeds on trial, up to the first that fails."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    return simulate(seeds, judge, max_steps=MAX_STEPS, make=partial(of_shape, shape))


def main(seeds: str) -> None:
    first, end = map(int, seeds.split(":"))
    with Pool(2) as pool:
        results = pool.map(partial(run, seeds=range(first, end)), FAMILY, chunksize=1)
    for shape, result in zip(FAMILY, results, strict=True):
        failed = "clean" if result.failed is None else f"FAILED {result.failed.failures}"
        sys.stdout.write(
            f"{shape}: {result.end - result.first} workloads, longest {result.longest} steps, "
            f"{result.preemptions} preemptions, {result.triggers.get('rewind', 0)} rewinds, "
            f"{result.events} events, {result.seconds:.0f} s: {failed}\n"
        )


if __name__ == "__main__":
    main(sys.argv[1])
