"""Runs with preemptions on SimRunner, in files: what the tests of S10, F1 to F4 and L3 corrupt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner


class Arrival(NamedTuple):
    at: int
    request_id: str
    prompt_len: int
    max_tokens: int
    priority: int = 0


def run_to_file(path: Path, arrivals: list[Arrival], **config: dict[str, object]) -> None:
    """Serve the arrivals, which are in order of `at`, to their end."""
    to_come = list(arrivals)
    with EventLog.open(path) as log, Engine(SimRunner(), from_mapping(config), log) as engine:
        while to_come or engine.has_unfinished_requests():
            while to_come and to_come[0].at <= engine.current_step:
                _, request_id, prompt_len, max_tokens, priority = to_come.pop(0)
                params = SamplingParams(max_tokens=max_tokens, priority=priority)
                engine.add_request(request_id, list(range(1, prompt_len + 1)), params)
            engine.step()


def urgent_run(path: Path) -> None:
    """`c` arrives late and is urgent: `b`, the worst, yields its slot and then gives up its KV.

    `d`, the least urgent, waits until the others are done.
    """
    run_to_file(
        path,
        [Arrival(0, "a", 4, 4, 1), Arrival(0, "b", 3, 5, 2), Arrival(6, "c", 8, 4, 0),
         Arrival(7, "d", 2, 2, 3)],
        scheduler={"policy": "priority", "enable_preemption": True, "max_num_seqs": 2},
        cache={"num_blocks": 40, "block_size": 2},
    )  # fmt: skip


def growing_run(path: Path, *, host_snapshot_blocks: int | None = None) -> None:
    """`a` grows and `b`, which came later, gives up its KV; later it comes back."""
    run_to_file(
        path,
        [Arrival(0, "a", 3, 8), Arrival(0, "b", 3, 6)],
        scheduler={"enable_preemption": True, "max_num_seqs": 2},
        cache={
            "num_blocks": 24,
            "block_size": 2,
            "incremental_allocation": True,
            "host_snapshot_blocks": host_snapshot_blocks,
        },
    )


def passing_run(path: Path) -> None:
    """`big` does not fit beside `a`; `b`, `c` and `d` do, and pass it."""
    run_to_file(
        path,
        [Arrival(0, "a", 4, 8), Arrival(1, "big", 12, 9), Arrival(2, "b", 2, 2),
         Arrival(3, "c", 2, 2), Arrival(4, "d", 2, 2)],
        scheduler={"max_num_seqs": 4},
        cache={"num_blocks": 40, "block_size": 2},
    )  # fmt: skip


def returning_run(path: Path, *, host_snapshot_blocks: int | None = None) -> None:
    """`big` does not fit beside `a`; `c` passes it, gives up its KV for `d`, and resumes."""
    run_to_file(
        path,
        [Arrival(0, "a", 4, 8, 1), Arrival(1, "big", 12, 9, 2), Arrival(2, "c", 2, 4, 3),
         Arrival(6, "d", 15, 2, 0)],
        scheduler={"policy": "priority", "enable_preemption": True, "max_num_seqs": 4},
        cache={
            "num_blocks": 60, "block_size": 2, "host_snapshot_blocks": host_snapshot_blocks,
        },
    )  # fmt: skip


def prompt_first_run(path: Path) -> None:
    """`b`'s prompt is cut in chunks, three of which may run while `a` is ready for a loop."""
    run_to_file(
        path,
        [Arrival(0, "a", 2, 4), Arrival(2, "b", 10, 2)],
        scheduler={
            "max_num_seqs": 2,
            "prefill_chunk_size": 2,
            "max_prefill_batches_before_decode": 3,
        },
        cache={"num_blocks": 60, "block_size": 2},
    )


def mixed_run(path: Path) -> None:
    """Prompt tokens are embedded along with a decode prelude while a loop is due and ready."""
    run_to_file(
        path,
        [Arrival(0, "a", 1, 16), Arrival(0, "b", 8, 16), Arrival(0, "c", 1, 16),
         Arrival(0, "d", 1, 16), Arrival(5, "e", 4, 16)],
        scheduler={"mode": "mixed", "enable_preemption": True, "prefill_chunk_size": 2},
        cache={
            "num_blocks": 40,
            "block_size": 3,
            "incremental_allocation": True,
            "host_snapshot_blocks": 0,
        },
        execution={"atomic_prefill": False},
    )  # fmt: skip
