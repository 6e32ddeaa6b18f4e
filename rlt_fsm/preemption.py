"""Preemption: who yields, and what is kept. Feasible first, then act, worst first.

A victim is strictly worse than the requester in the order key, and either ACTIVE with its work
queued or a WAITING resident. A row of the batch being built is TAKEN, so it is never a victim; nor
is a request with a ticket in flight, which may still write. Where what is missing will come free
when tickets in flight retire, the answer is to wait for that.
"""

from collections import Counter
from enum import Enum, auto

from .batch import Runner
from .blocks import plane_major
from .demand import claimed
from .events import Evicted, Offloaded, OffloadedResident, Rewound, Yielded
from .prefixes import Page
from .recorder import Recorder
from .state import EngineState, Request

HOST_FULL = "host-full"


class Room(Enum):
    """Whether a slot or blocks can be had."""

    FREE = auto()  # at once
    RETIRING = auto()  # once requests that have ended are retired
    IN_FLIGHT = auto()  # once worse requests have no ticket in flight any more
    NONE = auto()


class Preemption:
    """Takes slots and blocks from worse requests for a better one."""

    def __init__(self, state: EngineState, recorder: Recorder, runner: Runner) -> None:
        self._state = state
        self._recorder = recorder
        self._runner = runner
        scheduler = state.config.scheduler
        self._is_enabled = scheduler.enable_preemption
        self._yields = scheduler.enable_preemption and scheduler.policy == "priority"
        self.held_for: Request | None = None  # in this plan: the best that waits for victims

    # ---- waiting for victims -----------------------------------------------------------------

    def hold_victims(self, requester: Request) -> None:
        """Until the end of this plan nobody worse runs, so that the victims' tickets retire."""
        if self.held_for is None or requester.order_key < self.held_for.order_key:
            self.held_for = requester

    def is_held(self, request: Request) -> bool:
        """Whether a better request waits for worse ones to come out of flight."""
        return self.held_for is not None and request.order_key > self.held_for.order_key

    def _retiring(self) -> list[Request]:
        """Requests that have ended and wait for their last ticket."""
        return [r for r in self._state.by_ref.values() if r.finish_reason is not None]

    # ---- slots -------------------------------------------------------------------------------

    def slot_room(self, requester: Request) -> Room:
        """Whether a slot is free, or a strictly less urgent request can give up its own."""
        if self._state.has_slot():
            return Room.FREE
        if self._state.is_async and self._retiring():
            return Room.RETIRING
        if not self._yields:
            return Room.NONE
        if self._slot_victim(requester) is not None:
            return Room.FREE
        if self._state.is_async and any(
            request.tickets_in_flight and self._may_yield(request, requester)
            for request in self._state.by_ref.values()
        ):
            return Room.IN_FLIGHT
        return Room.NONE

    def free_slot(self, requester: Request) -> None:
        """Priority yield, where no slot is free: the worst victim keeps its KV on the device."""
        if self._state.has_slot():
            return
        victim = self._slot_victim(requester)
        assert victim is not None, "a slot can be had"
        self._runner.park(victim.spec, victim.state_row)
        self._recorder.record(Yielded(victim.ref, requester.ref), cause=requester.queued_seq)

    def _slot_victim(self, requester: Request) -> Request | None:
        candidates = (
            request
            for request in self._state.by_ref.values()
            if request.work.startswith("QUEUED:")
            and not request.tickets_in_flight
            and self._may_yield(request, requester)
        )
        return max(candidates, key=lambda request: request.order_key, default=None)

    def _may_yield(self, victim: Request, requester: Request) -> bool:
        """Whether a running request may lose its slot to a strictly more urgent one."""
        return victim.status == "ACTIVE" and victim.order_key[0] > requester.order_key[0]

    # ---- blocks ------------------------------------------------------------------------------

    def block_room(self, requester: Request, missing: int, keep: list[Page]) -> Room:
        """Whether `missing` more blocks, those of `keep` apart, come free if every worse request
        gives up its KV. What will be free by itself is waited for first.
        """
        if missing <= 0:
            return Room.FREE
        coming = self._retiring() if self._state.is_async else []
        if coming and missing <= self._held_alone(coming, keep):
            return Room.RETIRING
        if missing <= self.reclaimable(requester, keep):
            return Room.FREE
        if not self._state.is_async or not self._is_enabled:
            return Room.NONE
        victims = self._block_victims(requester)
        victims += [
            request
            for request in self._state.by_ref.values()
            if request.order_key > requester.order_key
            and request.tickets_in_flight
            and request.status == "ACTIVE"
        ]
        return Room.IN_FLIGHT if missing <= self._held_alone(victims + coming, keep) else Room.NONE

    def reclaimable(self, requester: Request, keep: list[Page]) -> int:
        """Blocks, those of `keep` apart, that come free if every worse request gives up its KV."""
        return self._held_alone(self._block_victims(requester), keep)

    def _held_alone(self, requests: list[Request], keep: list[Page]) -> int:
        """Blocks, those of `keep` apart, that nobody but `requests` references."""
        if not self._state.config.cache.enable_prefix_caching:
            return sum(request.blocks for request in requests)
        kept = {block for page in keep for block in page}
        held = Counter(block for request in requests for block in request.block_ids)
        references = self._state.pool.references
        return sum(1 for b, n in held.items() if n == references(b) and b not in kept)

    def make_room(self, requester: Request, blocks: int, keep: list[Page]) -> None:
        """Make `blocks` blocks free, which can be had: worst victims first. Pages in `keep` stay
        in the cache.
        """
        state, pool = self._state, self._state.pool
        if blocks <= pool.free:
            return
        if blocks + claimed(state, keep) > pool.obtainable:
            for victim in self._block_victims(requester):
                self._evict(victim, requester)
                if blocks + claimed(state, keep) <= pool.obtainable:
                    break
        self._evict_pages(requester, blocks, keep)

    def _block_victims(self, requester: Request) -> list[Request]:
        """Worse requests that hold blocks and may lose them, the worst first."""
        if not self._is_enabled:
            return []
        victims = [
            request
            for request in self._state.by_ref.values()
            if request.order_key > requester.order_key
            and request.blocks
            and not request.work.startswith("TAKEN:")
            and not request.tickets_in_flight
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
