"""Random workloads for `rlt-fsm simulate`: a seed decides all of one, on every machine, for ever.

They are plain `rlt-workload/1` objects, so that what fails can be written down, made smaller and
run again. Half of them are tight on purpose: few seats and blocks, many requests, so that
preemption, offloads and replays are common. Half of them are asynchronous, with results that come
late and overtake each other.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from rlt_fsm.counter_hash import draw, key_of
from rlt_fsm.machines import KV, STATUS, WORK
from rlt_fsm.workload import FORMAT, Workload, parse

T = TypeVar("T")
Object = dict[str, Any]  # an object of the file, before it is checked

MAX_STEPS = 2_000
_IDS = ("a", "b", "c", "d", "e", "f")


class Dice:
    """Draws from a seed, by counter hash: the same on every Python."""

    def __init__(self, seed: int) -> None:
        self._key = key_of("rlt-fsm simulate/1", seed)
        self._drawn = 0

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        self._drawn += 1
        return low + draw(self._key, self._drawn) % (high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; repeat one to make it likelier."""
        return options[self.between(0, len(options) - 1)]

    def happens(self, percent: int) -> bool:
        """True this often in a hundred."""
        return self.between(0, 99) < percent


def random_workload(seed: int, *, max_steps: int = MAX_STEPS, crashes: bool = False) -> Workload:
    """The workload of a seed, with crashes or without. It is cut off after `max_steps` steps."""
    dice = Dice(seed)
    is_tight = dice.happens(50)
    model: Object = {
        "depths": dice.pick((1, 2, 3, 4, 4)),
        "vocab_size": dice.pick((4, 512)),
        "max_model_len": dice.pick((20, 24, 40)),
    }
    low = 4 if is_tight else 1
    longest = dice.between(low, 12), dice.between(low, 8)  # prompt, outputs
    config = _config(dice, model, longest, is_tight=is_tight)
    has_trace = config["exit"]["mode"] == "trace"
    requests = _requests(dice, model, longest, is_tight=is_tight, has_trace=has_trace)
    workload = {
        "format": FORMAT,
        "name": f"simulate-{seed}",
        "seed": dice.between(0, 99),
        **model,
        "config": config,
        "requests": requests,
        "actions": _actions(dice, requests),
        "expect": {"max_steps": max_steps},
    }
    if dice.happens(50):
        config["execution"] |= {"async_scheduling": True, "max_in_flight": dice.pick((1, 2, 3, 5))}
        workload["completion"] = _completion(dice)
    if crashes and config["execution"]["durability"] != "off" and dice.happens(20):
        last = requests[-1]["at"] + 60
        for _ in range(dice.between(1, 3)):
            workload["actions"].append({"at": dice.between(0, last), "crash": True})
    return parse(msgspec.json.encode(workload), name=f"seed {seed}")


# ---- configurations ----------------------------------------------------------------------------


def _config(dice: Dice, model: Object, longest: tuple[int, int], *, is_tight: bool) -> Object:
    is_split = dice.happens(60)
    layout = dice.pick(("last_exited", "last_exited", "shared"))
    block_size = dice.pick((1, 2, 2, 4))
    planes = 1 if layout == "shared" else model["depths"]
    largest = -(-(sum(longest) - 1) // block_size) * planes  # blocks of the longest request
    host = dice.pick((None, None, 0, largest // 2, 2 * largest))
    return {
        "scheduler": {
            "mode": dice.pick(("refill", "no_refill", "mixed") if is_split else _UNMIXED),
            "policy": dice.pick(("fcfs", "priority")),
            "enable_preemption": dice.happens(90 if is_tight else 50),
            "max_num_seqs": dice.pick((2, 3, 4, 4, 6) if is_tight else (1, 2, 3, 4, 6)),
            "max_num_batched_tokens": dice.pick((4, 6, 8) if is_tight else (1, 2, 6, 12, 64)),
            "prefill_chunk_size": dice.pick((1, 2, 4, 4, 8, 64)),
            "min_coda_batch_size": dice.pick((1, 1, 2, 3, 50)),
            "max_prefill_batches_before_decode": dice.pick((1, 1, 2, 3)),
            "admission_scan_limit": dice.pick((64, 64, 2, 1)),
            "max_admission_bypasses": dice.pick((1, 2, 8)),
            "max_waiting": dice.pick((1, 3, 8)) if dice.happens(10) else None,
        },
        "cache": {
            "num_blocks": _num_blocks(dice, largest, is_tight=is_tight),
            "block_size": block_size,
            "layout": layout,
            "incremental_allocation": dice.happens(90 if is_tight else 50),
            "enable_prefix_caching": layout == "last_exited" and dice.happens(40),
            "watermark_ratio": dice.pick((0.0, 0.0, 0.0, 0.1, 0.3, 0.9)),
            "host_snapshot_blocks": host,
        },
        "execution": {
            "atomic_prefill": not is_split,
            "durability": dice.pick(("group", "step", "off")),
        },
        "exit": {"mode": "trace" if dice.happens(5) else None},
    }


_UNMIXED = ("refill", "no_refill")


def _completion(dice: Dice) -> Object | None:
    rules = {
        "order": dice.pick(("fifo", "random")),
        "seed": dice.between(0, 999),
        "max_delay": dice.pick((0, 1, 2, 5)),
    }
    return rules if dice.happens(90) else None


def _num_blocks(dice: Dice, largest: int, *, is_tight: bool) -> int | None:
    if is_tight:
        return largest + dice.between(0, max(1, largest // 2))
    if dice.happens(15):
        return None
    return max(1, largest * dice.pick((3, 4, 5, 6, 8, 12, 24)) // 4)


# ---- requests ----------------------------------------------------------------------------------


def _requests(
    dice: Dice, model: Object, longest: tuple[int, int], *, is_tight: bool, has_trace: bool
) -> list[Object]:
    reuses_ids = dice.happens(25)
    is_alike = dice.happens(50)  # prompts begin alike, so that the prefix cache has work
    gaps = dice.pick(((0,), (0, 0, 1, 2, 5), (0, 0, 1, 2, 5), (0, 3, 9), (0, 1, 60)))
    requests: list[Object] = []
    at = 0
    for i in range(dice.between(6, 12) if is_tight else dice.between(1, 12)):
        at += dice.pick(gaps)
        request = _request(dice, model, longest)
        request |= {"id": dice.pick(_IDS) if reuses_ids else f"r{i}", "at": at}
        if has_trace or dice.happens(15):
            request["exit_depths"] = _trace(dice, model, request)
        if is_alike and requests:
            other = requests[0]
            request["prompt_like"] = other["id"]
            shared = min(other["prompt_len"], request["prompt_len"])
            request["shared_len"] = shared - (dice.between(0, shared) if dice.happens(30) else 0)
        requests.append(request)
    return requests


def _request(dice: Dice, model: Object, longest: tuple[int, int]) -> Object:
    depths: int = model["depths"]
    min_loops = dice.between(1, min(2, depths))
    max_tokens = 0 if dice.happens(1) else dice.between(1, longest[1])
    params: Object = {
        "min_loops": min_loops,
        "max_loops": dice.pick((None, None, dice.between(min_loops, depths))),
        "exit_threshold": dice.pick((0.0, 0.3, 0.6, 0.6, 1.0)),
        "ignore_eos": dice.happens(50),
        "min_tokens": dice.pick((0, 0, 0, min(2, max_tokens))),
        "seed": dice.between(0, 3),
        "logprobs": dice.pick((None, None, 0)),
    }
    if dice.happens(15):
        params["stop_token_ids"] = [
            dice.between(0, model["vocab_size"] - 1) for _ in range(dice.pick((1, 2, 40)))
        ]
    request: Object = {
        "prompt_len": 0 if dice.happens(1) else dice.between(1, longest[0]),
        "max_tokens": max_tokens,
        "priority": dice.between(0, 2),
        "params": params,
    }
    if dice.happens(20):
        request[dice.pick(("eos_at", "stop_at"))] = dice.between(1, longest[1])
    return request


def _trace(dice: Dice, model: Object, request: Object) -> list[int]:
    params = request["params"]
    high = params["max_loops"] or model["depths"]
    later = [dice.between(params["min_loops"], high) for _ in range(request["max_tokens"] - 1)]
    return [model["depths"], *later]


# ---- actions -----------------------------------------------------------------------------------


def _actions(dice: Dice, requests: list[Object]) -> list[Object]:
    last = requests[-1]["at"] + 60
    actions: list[Object] = []
    if dice.happens(50):
        for _ in range(dice.between(1, 5)):
            actions.append({"abort": _name(dice, requests)})
            if dice.happens(50):
                actions[-1]["at"] = dice.between(0, last)
            else:
                actions[-1]["when"] = _when(dice, requests)
    if dice.happens(20):
        actions += [{"at": dice.between(0, last), "fail": True} for _ in range(dice.between(1, 3))]
    return actions


def _name(dice: Dice, requests: list[Object]) -> str:
    name: str = dice.pick(requests)["id"]
    return f"{name}#2" if dice.happens(10) else name


def _when(dice: Dice, requests: list[Object]) -> Object:
    """Any state of any machine, in which a request is for the first or a later time."""
    machine = dice.pick((WORK, WORK, WORK, STATUS, KV))
    state = dice.pick(machine["states"])
    nth = dice.pick((1, 1, 2, 4))
    return {"request": _name(dice, requests), machine["name"]: state, "nth": nth}
