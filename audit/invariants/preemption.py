"""S10: who may be preempted, for whom, and that nothing is lost between park and resume."""

from rlt_fsm.machines import NULL
from rlt_fsm.states import RequestStatus

from ..facts import BlockData, PreemptionData, decode
from ..legality import Move
from ..reader import EXTRA, REASON, REF, SEQ, Event
from .base import Handler, Invariant

WAITING, ACTIVE = RequestStatus.WAITING.value, RequestStatus.ACTIVE.value
RECOVERED = "recovered"


class S10Preemption(Invariant):
    """A victim is nobody's row and worse than its requester; it resumes as it was parked.

    For each `yield`, `offload`, `offload_resident` and `rewind` (in the step of `recover`, one that
    tells no `for` and whose reason is `recovered` excepted: a crash takes from everybody): (a)
    enable_preemption is on; (b) `for` names a live request, WAITING or ACTIVE, other than the
    victim; for `yield` it is WAITING, since it wants the slot; (c) the victim has no row in the
    batch being built and none in an unretired ticket, hence no undelivered output (an output is due
    only from a row whose ticket is not retired, S11), and holds no lease (`pin` without its
    `unpin`); (d) the victim is strictly worse than the requester in the order key; (e) for `yield`
    the requester's priority is strictly more urgent, which no priority is under `fcfs`. (f) By
    request, parking (`yield`, `offload`) and `resume` alternate, and the key resumed is the key
    parked; a `rewind` or the end of the request forgets what was parked.
    """

    id = "S10"
    KEPT_BY_REF = (("_parked", tuple[str, int]), ("_leased", set[int]))

    def prepare(self) -> None:
        """Nobody is parked, nothing is leased."""
        self._parked: dict[int, tuple[str, int]] = {}  # ref → (work key, seq)
        self._leased: dict[int, set[int]] = {}  # ref → blocks
        self._is_enabled = self.recount.config.scheduler.enable_preemption
        self._by_priority = self.recount.config.scheduler.policy == "priority"

    def handler(self, move: Move) -> Handler | None:
        """Preemptions, what they park, and what forgets it."""
        if not move.is_of_request:
            return None
        match move.trigger:
            case "yield" | "offload":
                return self._parking(move)
            case "offload_resident":
                return self._preempted_by("offload_resident")
            case "rewind":
                return self._rewound
            case "resume":
                return self._resuming(move)
            case "pin" | "unpin":
                return self._pinned
            case "finish" | "abort" | "retire" | "export":
                return self._forget
            case _:
                return None

    # ---- park, resume, forget ----------------------------------------------------------------

    def _parking(self, move: Move) -> Handler:
        key = "" if move.work is None else move.work[1].partition(":")[2]
        check = self._preempted_by(move.trigger)

        def parked(event: Event) -> None:
            check(event)
            ref = event[REF]
            if ref in self._parked:
                was, seq = self._parked[ref]
                self.found(
                    event,
                    f"{self.recount.name(ref)} is parked with {key}, but is parked with {was} "
                    f"already (seq {seq}).",
                    parked_seq=seq,
                    parked=was,
                )
            self._parked[ref] = key, event[SEQ]

        return parked

    def _resuming(self, move: Move) -> Handler:
        key = "" if move.work is None else move.work[1].partition(":")[2]

        def resumed(event: Event) -> None:
            ref = event[REF]
            parked = self._parked.pop(ref, None)
            if parked is None:
                self.found(
                    event, f"{self.recount.name(ref)} resumes with {key}, but is not parked."
                )
            elif parked[0] != key:
                self.found(
                    event,
                    f"{self.recount.name(ref)} resumes with {key}; it was parked with {parked[0]} "
                    f"(seq {parked[1]}).",
                    parked_seq=parked[1],
                    parked=parked[0],
                    resumed=key,
                )

        return resumed

    def _rewound(self, event: Event) -> None:
        self._preempted(event, "rewind")
        self._parked.pop(event[REF], None)

    def _forget(self, event: Event) -> None:
        self._parked.pop(event[REF], None)
        self._leased.pop(event[REF], None)

    def _pinned(self, event: Event) -> None:
        data = decode(event[EXTRA], BlockData)
        leased = self._leased.setdefault(event[REF], set())
        leased.update(data.pin)
        leased.difference_update(data.unpin)

    # ---- the victim and its requester --------------------------------------------------------

    def _preempted_by(self, trigger: str) -> Handler:
        return lambda event: self._preempted(event, trigger)

    def _preempted(self, event: Event, trigger: str) -> None:
        told = decode(event[EXTRA], PreemptionData).for_whom
        is_recovered = trigger == "rewind" and (event[REASON] or "").startswith(RECOVERED)
        if is_recovered and told is None and self.recount.is_recovering:
            return
        if not self._is_enabled:
            self._wrong(event, trigger, "enable_preemption is off")
        if (why := self._is_bound(event[REF])) is not None:
            self._wrong(event, trigger, why)
        requester = None if told is None else self.recount.ref_of(told)
        if requester is None:
            self._wrong(event, trigger, f"it is told to be for {told or 'nobody'}")
        elif (why := self._has_no_right(event[REF], requester, trigger)) is not None:
            self._wrong(event, trigger, why)

    def _is_bound(self, victim: int) -> str | None:
        """What keeps a victim from being one, if anything."""
        recount = self.recount
        newest = next(reversed(recount.tickets.values()), None)
        if newest is not None and newest.state == NULL and victim in newest.refs:
            return f"row {newest.refs[victim]} of the batch being built is its own"
        for ticket in recount.in_flight.values():
            if victim in ticket.refs:
                return f"ticket {ticket.number} has a row of it and is not retired"
        leased = self._leased.get(victim)
        return f"{len(leased)} of its blocks are leased" if leased else None

    def _has_no_right(self, victim: int, requester: int, trigger: str) -> str | None:
        """What keeps a requester from taking from a victim, if anything."""
        recount, name = self.recount, self.recount.name(requester)
        status = recount.status[requester]
        if requester == victim:
            return "it is told to be for itself"
        if status != WAITING and (status != ACTIVE or trigger == "yield"):
            return f"{name}, for whom it is, is {'not there' if status == NULL else status}"
        own, other = recount.order_key(victim), recount.order_key(requester)
        if own <= other:
            return f"{name}, for whom it is, is worse: order key {other} after {own}"
        if trigger == "yield" and not (self._by_priority and own[0] > other[0]):
            return f"{name}, for whom it is, is not more urgent: priority {other[0]} and {own[0]}"
        return None

    def _wrong(self, event: Event, trigger: str, why: str) -> None:
        name = self.recount.name(event[REF])
        told = decode(event[EXTRA], PreemptionData).for_whom
        self.found(
            event, f"`{trigger}` of {name}, although {why}.", trigger=trigger, requester=told
        )
