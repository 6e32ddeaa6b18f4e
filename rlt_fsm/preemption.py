"""Preemption: who yields, and what is kept. Feasible first, then act, worst first.

A victim is strictly worse than the requester in the order key, and either ACTIVE with its work
queued or a WAITING resident. A row of the batch being built is TAKEN, so it is never a victim; nor
is a request with a ticket in flight, which may still write. Where what is missing will come free
when tickets in flight retire, the answer is to wait for that.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from itertools import accumulate, chain

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

    # ---- slots -------------------------------------------------------------------------------

    def slot_room(self, requester: Request) -> Room:
        """Whether a slot is free, or a strictly less urgent request can give up its own."""
        if self._state.has_slot():
            return Room.FREE
        if self._state.retiring:
            return Room.RETIRING
        if not self._yields:
            return Room.NONE
        if self._slot_victim(requester) is not None:
            return Room.FREE
        worse = self._state.holders.worse_than(requester.order_key)
        in_flight = (request for request in worse if request.tickets_in_flight)
        if any(self._may_yield(request, requester) for request in in_flight):
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
        """Who gives up its slot: the worst that may. Whoever is active holds blocks."""
        for request in self._state.holders.worse_than(requester.order_key):
            is_queued = request.work.startswith("QUEUED:") and not request.tickets_in_flight
            if is_queued and self._may_yield(request, requester):
                return request
        return None

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
        retiring = self._state.retiring
        if retiring and self._is_enough(retiring, missing, keep):
            return Room.RETIRING
        if self._is_enough(self._block_victims(requester), missing, keep):
            return Room.FREE
        if not self._state.is_async or not self._is_enabled:
            return Room.NONE
        worse = self._state.holders.worse_than(requester.order_key)
        coming = chain(retiring, (other for other in worse if other not in retiring))
        return Room.IN_FLIGHT if self._is_enough(coming, missing, keep) else Room.NONE

    def _is_enough(self, holders: Iterable[Request], missing: int, keep: list[Page]) -> bool:
        """Whether `missing` blocks, those of `keep` apart, are referenced by nobody but some
        `holders`; no more of them are looked at than it takes.
        """
        if not self._state.config.cache.enable_prefix_caching:
            return any(missing <= held for held in accumulate(h.blocks for h in holders))
        kept = {block for page in keep for block in page}
        references = self._state.pool.references
        held: Counter[int] = Counter()
        for holder in holders:
            for block in holder.block_ids:
                held[block] += 1
                missing -= held[block] == references(block) and block not in kept
            if missing <= 0:
                return True
        return False

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

    def _block_victims(self, requester: Request) -> Iterable[Request]:
        """Worse requests that hold blocks and may lose them, the worst first."""
        if not self._is_enabled:
            return ()
        return (
            request
            for request in self._state.holders.worse_than(requester.order_key)
            if not request.work.startswith("TAKEN:")
            and not request.tickets_in_flight
            and request.finish_reason is None
        )

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
