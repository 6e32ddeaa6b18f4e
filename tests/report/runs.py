"""Runs to report on: busy, large, with findings, and two of which one has fewer slots."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "audit"))  # how logs are corrupted there

from reseal import Tampered

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

LARGE_REQUESTS, LARGE_STEPS = 200, 20_000


def drive(path: Path, requests: list[dict], config: dict, *, steps: int | None = None) -> Path:
    """Requests, each with the step `at` which it comes, through an engine into a file."""
    waiting = sorted(enumerate(requests), key=lambda pair: (pair[1]["at"], pair[0]))
    with EventLog.open(path) as log, Engine(SimRunner(check=False), from_mapping(config), log) as e:
        step = 0
        while waiting or e.has_unfinished_requests():
            while waiting and waiting[0][1]["at"] <= step:
                _, request = waiting.pop(0)
                prompt = [1 + (7 * i + len(request["id"])) % 500 for i in range(request["prompt"])]
                params = SamplingParams(
                    max_tokens=request["outputs"],
                    priority=request.get("priority", 0),
                    exit_threshold=0.6,
                )
                e.add_request(request["id"], prompt, params)
            e.step()
            step += 1
            if step == steps:
                break
    return path


def busy(path: Path, *, slots: int = 6, requests: int = 24) -> Path:
    """More than fits: requests wait, yield to more urgent ones, and lose their blocks."""
    arrivals = [
        {
            "id": f"chat-{n:02}" if n % 3 else f"batch-{n:02}",
            "at": 6 * n,
            "prompt": 8 + 5 * (n % 7),
            "outputs": 6 + 9 * (n % 4),
            "priority": 0 if n % 3 else 2,
        }
        for n in range(requests)
    ]
    config = {
        "scheduler": {
            "max_num_seqs": slots, "max_num_batched_tokens": 48, "prefill_chunk_size": 24,
            "policy": "priority", "enable_preemption": True,
        },
        "cache": {
            "num_blocks": 200, "block_size": 4, "incremental_allocation": True,
            "host_snapshot_blocks": 60,
        },
    }  # fmt: skip
    return drive(path, arrivals, config)


def small(path: Path) -> Path:
    """Four requests, two slots, one of them aborted when its run is closed."""
    arrivals = [
        {"id": name, "at": 2 * n, "prompt": 5, "outputs": 4} for n, name in enumerate("abcd")
    ]
    config = {"scheduler": {"max_num_seqs": 2}, "cache": {"num_blocks": 60, "block_size": 4}}
    return drive(path, arrivals, config, steps=40)


def with_findings(path: Path) -> Path:
    """The busy run, with a loop, a block table and an output that are not what they were."""
    busy(path)
    log = Tampered(path)
    log.selects("DECODE_RECURRENT")[300].d += 1
    grown = log.all("grow")[40]
    grown.tell(take=[log.all("admit")[0].data["take"][0], *grown.data["take"][1:]])
    log.all("output")[200].a += 1
    return log.seal()


def large(path: Path, *, slots: int = 64, requests: int = LARGE_REQUESTS) -> Path:
    """200 requests over 20,000 steps, or as many fewer of both."""
    scale = requests / LARGE_REQUESTS
    arrivals = [
        {"id": f"request-{n:03}", "at": 60 * n, "prompt": 40 + n % 90,
         "outputs": round((1500 + 10 * n) * scale), "priority": n % 4}
        for n in range(requests)
    ]  # fmt: skip
    config = {
        "scheduler": {
            "max_num_seqs": slots, "max_num_batched_tokens": 256, "policy": "priority",
            "enable_preemption": True,
        },
        "cache": {"num_blocks": 40_000, "block_size": 16, "incremental_allocation": True},
    }  # fmt: skip
    return drive(path, arrivals, config, steps=round(LARGE_STEPS * scale))
