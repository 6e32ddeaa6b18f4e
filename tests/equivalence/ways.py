"""The ways of scheduling that must not show in what a request gets: one engine config each."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from equivalence.request_sets import FULL_DEPTH, Wanted

from rlt_fsm import CacheConfig, EngineConfig, ExecutionConfig, SchedulerConfig

BLOCK_SIZE = 4
SCHEDULES = (
    ("refill", "atomic"),
    ("refill", "split"),
    ("no_refill", "atomic"),
    ("no_refill", "split"),
    ("mixed", "split"),
)
# What each pool is there for, in the triggers of the log; see `Way.config`.
POOLS = {
    "roomy": (),
    "yields": ("yield", "resume"),
    "offloads": ("offload", "resume"),
    "rewinds": ("rewind",),
    "some snapshots": ("offload", "rewind", "resume"),
    "prefix pages": ("publish", "rewind"),
}
COMPANIES = ("one by one", "together")


class Way(NamedTuple):
    """One way to serve a set of requests."""

    mode: str
    prefill: str
    pool: str
    company: str
    layout: str

    def __str__(self) -> str:
        return ", ".join(self)

    def config(self, requests: Sequence[Wanted]) -> EngineConfig:
        """Roomy: seats and blocks for all. Yields: blocks for all, two seats, urgent ones first.
        The others: a pool that holds the largest request and little more.
        """
        planes = FULL_DEPTH if self.layout == "last_exited" else 1
        pages = [-(-wanted.positions // BLOCK_SIZE) for wanted in requests]
        largest, all_of_them = max(pages) * planes, sum(pages) * planes
        scheduler = SchedulerConfig(
            mode=self.mode,
            max_num_seqs=len(requests),
            max_num_batched_tokens=12,
            prefill_chunk_size=5,
        )
        cache = CacheConfig(block_size=BLOCK_SIZE, layout=self.layout, num_blocks=all_of_them)
        urgent = {"policy": "priority", "enable_preemption": True}
        if self.pool == "yields":
            scheduler = msgspec.structs.replace(scheduler, max_num_seqs=2, **urgent)
        elif self.pool != "roomy":
            scheduler = msgspec.structs.replace(scheduler, max_num_seqs=4, **urgent)
            tight = {"num_blocks": largest + planes, "incremental_allocation": True}
            cache = msgspec.structs.replace(cache, **tight, **self._host(largest))
        return EngineConfig(
            scheduler=scheduler,
            cache=cache,
            execution=ExecutionConfig(atomic_prefill=self.prefill == "atomic"),
        )

    def _host(self, largest: int) -> dict[str, object]:
        match self.pool:
            case "offloads":
                return {"host_snapshot_blocks": None}
            case "rewinds":
                return {"host_snapshot_blocks": 0}
            case "some snapshots":
                return {"host_snapshot_blocks": largest // 2}
            case "prefix pages":
                return {"host_snapshot_blocks": 0, "enable_prefix_caching": True}
        raise AssertionError(self.pool)


def ways(layout: str) -> list[Way]:
    """Every combination that a config allows; the first is the plainest."""
    return [
        Way(mode, prefill, pool, company, layout)
        for mode, prefill in SCHEDULES
        for pool in POOLS
        if not (pool == "prefix pages" and layout == "shared")
        for company in COMPANIES
    ]
