"""Preemption: who yields, and what is kept. Feasible first, then act, worst first.

A victim is strictly worse than the requester in the order key, and either ACTIVE with its work
queued or a WAITING resident. A row of the batch being built is TAKEN, so it is never a victim.
"""

from collections import Counter

from .batch import Runner
from .blocks import plane_major
from .demand import claimed
from .events import Evicted, Offloaded, OffloadedResident, Rewound, Yielded
from .prefixes import Page
from .recorder import Recorder
from .state import EngineState, Request

HOST_FULL = "host-full"


class Preemption:
    """Takes slots and blocks from worse requests for a better one."""

    def __init__(self, state: EngineState, recorder: Recorder, runner: Runner) -> None:
        self._state = state
        self._recorder = recorder
        self._runner = runner

    # ---- slots -------------------------------------------------------------------------------

    def can_free_slot(self, requester: Request) -> bool:
        """Whether a slot is free or a strictly less urgent request holds one."""
        return self._state.has_slot() or self._slot_victim(requester) is not None

    def free_slot(self, requester: Request) -> None:
        """Priority yield, where no slot is free: the worst victim keeps its KV on the device."""
        if self._state.has_slot():
            return
        victim = self._slot_victim(requester)
        assert victim is not None, "a slot can be had"
        self._runner.park(victim.spec, victim.state_row)
        self._recorder.record(Yielded(victim.ref, requester.ref), cause=requester.queued_seq)

    def _slot_victim(self, requester: Request) -> Request | None:
        scheduler = self._state.config.scheduler
        if scheduler.policy != "priority" or not scheduler.enable_preemption:
            return None
        urgency = requester.order_key[0]
        candidates = (
            request
            for request in self._state.by_ref.values()
            if request.order_key[0] > urgency and request.work.startswith("QUEUED:")
        )
        return max(candidates, key=lambda request: request.order_key, default=None)

    # ---- blocks ------------------------------------------------------------------------------

    def reclaimable(self, requester: Request, keep: list[Page]) -> int:
        """Blocks, those of `keep` apart, that come free if every worse request gives up its KV."""
        victims = self._block_victims(requester)
        if not self._state.config.cache.enable_prefix_caching:
            return sum(victim.blocks for victim in victims)
        kept = {block for page in keep for block in page}
        held = Counter(block for victim in victims for block in victim.block_ids)
        references = self._state.pool.references
        return sum(1 for b, n in held.items() if n == references(b) and b not in kept)

    def make_room(self, requester: Request, blocks: int, keep: list[Page]) -> bool:
        """Make `blocks` blocks free, worst victims first; False, and nothing changed, where all
        worse requests together do not hold enough. Pages in `keep` stay in the cache.
        """
        state, pool = self._state, self._state.pool
        if blocks <= pool.free:
            return True
        missing = blocks + claimed(state, keep) - pool.obtainable
        if missing > 0:
            if missing > self.reclaimable(requester, keep):
                return False
            for victim in self._block_victims(requester):
                self._evict(victim, requester)
                if blocks + claimed(state, keep) <= pool.obtainable:
                    break
        self._evict_pages(requester, blocks, keep)
        return True

    def _block_victims(self, requester: Request) -> list[Request]:
        """Worse requests that hold blocks and may lose them, the worst first."""
        if not self._state.config.scheduler.enable_preemption:
            return []
        victims = [
            request
            for request in self._state.by_ref.values()
            if request.order_key > requester.order_key
            and request.blocks
            and not request.work.startswith("TAKEN:")
            and request.status in {"ACTIVE", "WAITING"}
        ]
        victims.sort(key=lambda request: request.order_key, reverse=True)
        return victims

    def _evict(self, victim: Request, requester: Request) -> None:
        """Capacity preemption: the victim's KV goes to the host, or a replay rebuilds it later."""
        budget = self._state.config.cache.host_snapshot_blocks
        active = victim.status == "ACTIVE"
        fact: Rewound | Offloaded | OffloadedResident
        if budget is not None and self._state.host_blocks + victim.blocks > budget:
            self._runner.release(victim.spec)
            fact = Rewound(victim.ref, HOST_FULL, requester.ref, victim.block_ids)
        else:
            if active:
                self._runner.park(victim.spec, victim.state_row)
            self._runner.offload(victim.spec, victim.block_table)
            kind = Offloaded if active else OffloadedResident
            fact = kind(victim.ref, requester.ref, victim.block_ids, victim.blocks)
        self._recorder.record(fact, cause=requester.queued_seq)

    def _evict_pages(self, requester: Request, blocks: int, keep: list[Page]) -> None:
        """Evict the oldest unreferenced prefix pages until `blocks` blocks are free."""
        pool = self._state.pool
        short = blocks - pool.free
        if short <= 0:
            return
        kept = {page[0] for page in keep}
        pages: list[Page] = []
        for page in self._state.prefixes.oldest_first():
            if page[0] not in kept and not pool.references(page[0]):
                pages.append(page)
                short -= len(page)
                if short <= 0:
                    break
        assert short <= 0, "obtainable blocks can be obtained"
        self._recorder.record(
            Evicted(requester.ref, plane_major(pages, self._state.planes)),
            cause=requester.queued_seq,
        )
