"""Workloads that differ in a few places from one that failed once, and the command for many.

A flaw that one seed in ten thousand shows is shown by many of its neighbours:

    python tests/simulation/neighbours.py resumed-without-its-next-token 0:2000
"""

import sys
from functools import partial
from pathlib import Path

import msgspec
import structlog
from judging import judge

from rlt_fsm.workload import Workload, load, parse, to_json
from runner.simulate import MAX_STEPS, simulate
from runner.simulate_workloads import Dice, Object

FOUND = Path(__file__).parent / "found"


def neighbour(file: Path, seed: int, *, max_steps: int = MAX_STEPS) -> Workload:
    """The workload of a file with one to three differences, which a seed decides."""
    dice = Dice(seed)
    made: Object = msgspec.json.decode(to_json(load(file)))
    for number in range(dice.between(1, 3)):
        _differ(made, dice, number)
    made["requests"].sort(key=lambda request: request.get("at", 0))
    made["expect"] = {"max_steps": max_steps}
    return parse(msgspec.json.encode(made), name=f"{file.stem}, seed {seed}")


def _differ(made: Object, dice: Dice, number: int) -> None:
    request, config = dice.pick(made["requests"]), made["config"]
    what = dice.pick(("at", "prompt_len", "max_tokens", "request", "blocks", "budget", "mode"))
    if what in ("prompt_len", "max_tokens"):  # never longer, so that the door lets it in
        request[what] = max(1, request.get(what, 16) - dice.between(1, 3))
    elif what == "at":
        request["at"] = max(0, request.get("at", 0) + dice.between(-3, 3))
    elif what == "request":
        shorter = {"prompt_len": dice.between(1, request["prompt_len"]), "max_tokens": 4}
        priority = dice.between(0, 2)
        made["requests"].append({"id": f"new{number}", "at": 4, "priority": priority, **shorter})
    elif what == "blocks" and config["cache"].get("num_blocks"):
        config["cache"]["num_blocks"] += dice.between(0, 2)
    elif what == "budget":
        config["scheduler"]["max_num_batched_tokens"] = dice.between(1, 4)
    elif what == "mode" and config["scheduler"].get("mode") != "mixed":
        config["scheduler"]["mode"] = dice.pick(("refill", "no_refill"))


def main(name: str, seeds: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    first, end = map(int, seeds.split(":"))
    result = simulate(range(first, end), judge, make=partial(neighbour, FOUND / f"{name}.json"))
    failed = "clean" if result.failed is None else f"FAILED {result.failed.failures}"
    sys.stdout.write(
        f"{name}: {result.end - result.first} neighbours, {result.preemptions} preemptions, "
        f"{result.events} events, {result.seconds:.0f} s: {failed}\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
