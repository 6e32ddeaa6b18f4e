"""Random workloads in which who has entered waits long for its first row, and the command for many.

Few tokens a batch, small blocks, and better requests that take a second token's blocks meanwhile:
what L3 forbids would show here. Each way keeps requests from running by something else. Some
thousands of each take some minutes:

    python tests/simulation/starved_family.py 0:2000
"""

import sys
from functools import partial

import msgspec
import structlog
from judging import judge

from rlt_fsm.workload import FORMAT, Workload, parse
from runner.simulate import MAX_STEPS, simulate
from runner.simulate_workloads import Dice, Object

WAYS = ("prompts", "codas", "yields", "rewinds", "late")


def of_way(way: str, seed: int, *, max_steps: int = MAX_STEPS) -> Workload:
    """The workload of a seed, in which requests are kept from running in one way."""
    dice = Dice(seed)
    longest = dice.between(2, 8), dice.between(2, 8)  # prompt, outputs
    is_split = dice.happens(50)
    made: Object = {
        "format": FORMAT,
        "name": f"starved-by-{way}-{seed}",
        "seed": seed,
        "max_model_len": 40,
        "depths": dice.pick((1, 1, 2, 3)),
        "config": _config(dice, way, sum(longest) - 1, is_split=is_split),
        "requests": _requests(dice, longest),
        "expect": {"max_steps": max_steps},
    }
    if way == "late":
        rules = {"order": dice.pick(("fifo", "random")), "max_delay": dice.pick((0, 1, 2, 5))}
        made["completion"] = {"seed": seed, **rules}
    return parse(msgspec.json.encode(made))


def _config(dice: Dice, way: str, largest: int, *, is_split: bool) -> Object:
    modes = ("refill", "no_refill", "mixed") if is_split else ("refill", "no_refill")
    scheduler = {
        "mode": dice.pick(modes),
        "policy": dice.pick(("priority", "priority", "fcfs")),
        "enable_preemption": True,
        "max_num_seqs": dice.pick((2, 3) if way == "yields" else (4, 6, 8)),
        "max_num_batched_tokens": dice.pick((1, 1, 2, 3)),
        "prefill_chunk_size": dice.pick((1, 1, 2, 4)),
        "min_coda_batch_size": dice.pick((2, 3, 50) if way == "codas" else (1,)),
        "max_prefill_batches_before_decode": dice.pick((1, 1, 2, 3, 5)),
        "max_admission_bypasses": dice.pick((1, 2, 8)),
    }
    cache = {
        "num_blocks": largest + dice.between(0, largest),
        "block_size": 1,
        "layout": "shared",
        "incremental_allocation": True,
        "host_snapshot_blocks": dice.pick((0, 2, largest)) if way == "rewinds" else None,
    }
    execution: Object = {"atomic_prefill": not is_split}
    if way == "late":
        execution |= {"async_scheduling": True, "max_in_flight": dice.pick((2, 3, 5))}
    return {"scheduler": scheduler, "cache": cache, "execution": execution}


def _requests(dice: Dice, longest: tuple[int, int]) -> list[Object]:
    at = 0
    requests = []
    for i in range(dice.between(5, 12)):
        at += dice.pick((0, 0, 1, 2, 5, 9))
        threshold = dice.pick((0.0, 0.0, 0.0, 0.6, 1.0))
        requests.append(
            {
                "id": f"r{i}",
                "at": at,
                "prompt_len": dice.between(1, longest[0]),
                "max_tokens": dice.between(1, longest[1]),
                "priority": dice.between(0, 2),
                "params": {"exit_threshold": threshold, "ignore_eos": True, "seed": i},
            }
        )
    return requests


def main(seeds: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    first, end = map(int, seeds.split(":"))
    for way in WAYS:
        result = simulate(range(first, end), judge, make=partial(of_way, way))
        failed = "clean" if result.failed is None else f"FAILED {result.failed.failures}"
        sys.stdout.write(
            f"starved by {way}: {result.end - result.first} workloads, {result.preemptions} "
            f"preemptions, {result.events} events, {result.seconds:.0f} s: {failed}\n"
        )


if __name__ == "__main__":
    main(sys.argv[1])
