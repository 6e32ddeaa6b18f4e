"""Admission: which waiting requests may enter or resume. Decides and records."""

from collections import deque

from .batch import Runner
from .blocks import plane_major
from .demand import Demand, entry_demand, promised, watermark
from .events import Admitted, Resumed
from .preemption import Preemption, Room
from .recorder import Recorder
from .state import EngineState, Request
from .states import WorkKey
from .verdicts import Verdicts


class Admission:
    """Lets waiting requests in."""

    def __init__(
        self,
        state: EngineState,
        recorder: Recorder,
        runner: Runner,
        preemption: Preemption,
        verdicts: Verdicts,
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._runner = runner
        self._preemption = preemption
        self._verdicts = verdicts

    def admit(self) -> None:
        """Admit and resume in order-key order while slots and blocks last.

        At most `admission_scan_limit` requests are looked at. A request that does not fit may be
        passed by worse fresh ones until it was passed `max_admission_bypasses` times; then the
        scan stops at it, as it does at one that waits with KV on the device. It also stops before
        requests that are worse than one that was preempted for an entry of this scan: that one is
        looked at in the next.
        """
        limits = self._state.config.scheduler
        waiting = self._state.waiting
        scan = waiting.first(limits.admission_scan_limit)
        left_behind: list[Request] = []
        has_preempted = False
        blocks = _Blocks(self._state, self._preemption)
        for i, request in enumerate(scan):
            if has_preempted and (victim := self._better_victim(request, left_behind)):
                self._verdicts.give(scan[i:], f"behind id={victim.spec.request_id}")
                return
            if self._preemption.is_held(request):
                self._verdicts.give(scan[i:], "in-flight")
                return
            room = self._preemption.slot_room(request)
            if room is not Room.FREE:
                self._verdicts.give(scan[i:], "no-slot" if room is Room.NONE else "in-flight")
                if room is Room.IN_FLIGHT:
                    self._preemption.hold_victims(request)
                return
            demand = entry_demand(self._state, request)
            room = blocks.room(request, demand)
            if room is Room.FREE:
                before = len(waiting)
                self._enter(request, demand)
                preempts = len(waiting) >= before
                blocks.count_entry(request, preempts=preempts)
                has_preempted |= preempts
            else:
                left_behind.append(request)
                self._leave_behind(request, demand, room)
                if room is not Room.NONE or request.kv == "RESIDENT":
                    # It is about to fit, or holds what others may need: nobody worse goes first.
                    self._verdicts.give(scan[i + 1 :], f"behind id={request.spec.request_id}")
                    return
            for passed in left_behind:
                if passed.bypasses >= limits.max_admission_bypasses:
                    behind = f"bypass-limit behind={passed.spec.request_id}"
                    self._verdicts.give(scan[i + 1 :], behind)
                    return

    def _leave_behind(self, request: Request, demand: Demand, room: Room) -> None:
        word = "blocks" if room is Room.NONE else "in-flight"
        free = self._state.pool.obtainable
        self._verdicts.give([request], f"{word} need={demand.total} free={free}")
        if room is Room.IN_FLIGHT:
            self._preemption.hold_victims(request)

    def _better_victim(self, request: Request, left_behind: list[Request]) -> Request | None:
        """Who waits before a request without having been looked at: it was running until now."""
        ahead = self._state.waiting.ahead_of(request.order_key)
        return next((other for other in ahead if other not in left_behind), None)

    def _enter(self, request: Request, demand: Demand) -> None:
        self._preemption.free_slot(request)
        self._preemption.make_room(request, demand.take, demand.shared)
        if request.work == "IDLE":
            self._admit(request, demand)
        else:
            self._resume(request, demand)

    def _admit(self, request: Request, demand: Demand) -> None:
        state = self._state
        atomic = state.config.execution.atomic_prefill or request.replaying
        self._recorder.record(
            Admitted(
                request.ref,
                WorkKey.PROMPT_ATOMIC if atomic else WorkKey.PROMPT_PRELUDE,
                blocks_needed=demand.need,
                cached_tokens=len(demand.shared) * state.block_size,
                state_row=state.free_state_rows[-1],
                blocks=state.pool.peek(demand.take),
                shared=plane_major(demand.shared, state.planes),
            ),
            cause=request.queued_seq,
        )

    def _resume(self, request: Request, demand: Demand) -> None:
        was_offloaded = request.kv == "OFFLOADED"
        self._recorder.record(
            Resumed(
                request.ref, self._state.free_state_rows[-1], self._state.pool.peek(demand.take)
            ),
            cause=request.queued_seq,
        )
        self._runner.unpark(request.spec, request.state_row)
        if was_offloaded:
            self._runner.reload(request.spec, request.block_table)


class _Blocks:
    """The blocks that can be had in one scan, asked for ever worse requests.

    What running requests were promised is counted once, and then changed by who enters: or a scan
    would count every live request for each waiting one.
    """

    def __init__(self, state: EngineState, preemption: Preemption) -> None:
        self._state = state
        self._preemption = preemption
        self._to_better = 0  # promised to running requests better than who was asked for last
        self._to_others = 0  # to the other running ones
        self._others: deque[tuple[Request, int]] | None = None  # with what each was; best first

    def room(self, request: Request, demand: Demand) -> Room:
        """Whether its blocks can be had: beside what was promised to running requests and the
        watermark; or paid by worse requests, beside what was promised to better ones.
        """
        if not demand.total:
            return Room.FREE
        self._count_better(request)
        state = self._state
        kept_free = self._to_better + self._to_others + watermark(state)
        if demand.total <= state.pool.obtainable - kept_free:
            return Room.FREE
        if state.config.scheduler.enable_preemption:
            kept_free = self._to_better
        missing = demand.total + kept_free - state.pool.obtainable
        return self._preemption.block_room(request, missing, demand.shared)

    def count_entry(self, request: Request, *, preempts: bool) -> None:
        """A request has entered; `preempts`: running ones were preempted for it."""
        if self._others is None:
            return
        self._to_better += promised(self._state, request)
        if preempts:
            self._others = deque(other for other in self._others if other[0].status == "ACTIVE")
            self._to_others = sum(blocks for _, blocks in self._others)

    def _count_better(self, request: Request) -> None:
        if self._others is None:
            running = (other for other in self._state.holders if other.status == "ACTIVE")
            promises = ((other, promised(self._state, other)) for other in running)
            self._others = deque(promise for promise in promises if promise[1])
            self._to_others = sum(blocks for _, blocks in self._others)
        while self._others and self._others[0][0].order_key < request.order_key:
            _, blocks = self._others.popleft()
            self._to_better += blocks
            self._to_others -= blocks
