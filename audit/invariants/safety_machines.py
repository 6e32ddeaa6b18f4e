"""S2 to S5: what must hold between the request machines after every event."""

from collections.abc import Callable

from rlt_fsm.machines import HELD, IDLE, NULL
from rlt_fsm.states import RequestStatus

from ..legality import Move
from ..reader import REF, Event
from ..recount import Step
from .base import Handler, Invariant

WAITING, ACTIVE, FINISHED = (
    RequestStatus.WAITING.value,
    RequestStatus.ACTIVE.value,
    RequestStatus.FINISHED.value,
)
MAY_HOLD_A_SLOT = (ACTIVE, RequestStatus.TRANSFERRING.value, FINISHED)


class S2SlotLimit(Invariant):
    """Held slots never exceed max_num_seqs.

    Counted as the requests whose slot machine went to HELD and has not come back. A step's row
    must tell the number of held slots that its events leave (`slots_held`).
    """

    id = "S2"

    def handler(self, move: Move) -> Handler | None:
        """Only moves of the slot machine matter."""
        if move.slot is None or not move.is_of_request:
            return None
        holders = self.recount.slot_holders
        limit = self.recount.config.scheduler.max_num_seqs

        def take(event: Event) -> None:
            holders.add(event[REF])
            if limit is not None and len(holders) > limit:
                self.found(
                    event,
                    f"{self.recount.name(event[REF])} takes slot {len(holders)} of {limit}.",
                    slots_held=len(holders),
                    max_num_seqs=limit,
                    holders=sorted(self.recount.name(ref) for ref in holders),
                )

        def give_back(event: Event) -> None:
            holders.discard(event[REF])

        return take if move.slot[1] == HELD else give_back

    def after_step(self, step: Step) -> None:
        """Hold the row's `slots_held` against the count."""
        if step.row is not None:
            self.compare_row(step, step.row, "slots_held", len(self.recount.slot_holders))


def _moves_status_or_slot(move: Move) -> bool:
    return move.is_of_request and (move.status is not None or move.slot is not None)


class S3ActiveHoldsSlot(Invariant):
    """Every ACTIVE request holds exactly one slot.

    After each event that moves a request's status or slot: status ACTIVE requires slot HELD. That
    it holds no second one follows from S1: a slot is taken only from FREE.
    """

    id = "S3"

    def handler(self, move: Move) -> Handler | None:
        """Only moves of status and slot matter."""
        if not _moves_status_or_slot(move):
            return None
        status, slot = self.recount.status, self.recount.slot

        def check(event: Event) -> None:
            ref = event[REF]
            if status[ref] == ACTIVE and slot[ref] != HELD:
                self.found(
                    event,
                    f"{self.recount.name(ref)} is ACTIVE after `{move.trigger}` without a slot.",
                    slot=slot[ref],
                    trigger=move.trigger,
                )

        return check


class S4SlotHasOwner(Invariant):
    """Every held slot belongs to a request that is ACTIVE, TRANSFERRING or FINISHED, not retired.

    After each event that moves a request's status or slot: slot HELD requires one of these. The
    step of `recover` leaves no slot held: who was running starts anew.
    """

    id = "S4"

    def handler(self, move: Move) -> Handler | None:
        """Only moves of status and slot matter."""
        if not _moves_status_or_slot(move):
            return None
        status, slot = self.recount.status, self.recount.slot

        def check(event: Event) -> None:
            ref = event[REF]
            if slot[ref] == HELD and status[ref] not in MAY_HOLD_A_SLOT:
                is_ = "retired" if status[ref] == NULL else status[ref]
                self.found(
                    event,
                    f"{self.recount.name(ref)} still holds a slot after `{move.trigger}`, "
                    f"although it is {is_}.",
                    status=status[ref],
                    trigger=move.trigger,
                )

        return check

    def after_step(self, step: Step) -> None:
        """After a crash nobody runs."""
        if step.is_recovery and self.recount.slot_holders:
            holders = sorted(self.recount.name(ref) for ref in self.recount.slot_holders)
            self.found_in_step(
                step,
                f"The recovery of step {step.number} leaves {holders[0]} its slot; nobody runs "
                "after a crash.",
                holders=holders,
            )


class S5PendingWork(Invariant):
    """A request has pending work (QUEUED or TAKEN) only while ACTIVE; a WAITING one just waits.

    After each event that moves a request's status, or moves its work out of IDLE or PARKED or into
    one of them: QUEUED and TAKEN require ACTIVE, and PARKED requires WAITING. That it has at most
    one pending key follows from there being one work machine. A step's row must tell the number of
    WAITING requests that its events leave (`waiting`): that they are in the queue, once each.
    """

    id = "S5"

    def handler(self, move: Move) -> Handler | None:
        """Work that goes on between QUEUED and TAKEN cannot break the rule."""
        if not move.is_of_request:
            return None
        check = self._check(move) if self._can_break(move) else None
        if move.status is None or WAITING not in move.status:
            return check
        waiting = self.recount.waiting
        count = waiting.add if move.status[1] == WAITING else waiting.discard

        def count_and_check(event: Event) -> None:
            count(event[REF])
            if check is not None:
                check(event)

        return count_and_check

    @staticmethod
    def _can_break(move: Move) -> bool:
        still = ("IDLE", "PARKED")
        return move.status is not None or (
            move.work is not None and any(state.startswith(still) for state in move.work)
        )

    def _check(self, move: Move) -> Callable[[Event], None]:
        status, work = self.recount.status, self.recount.work

        def check(event: Event) -> None:
            ref = event[REF]
            if work[ref] == IDLE:
                return
            needed = WAITING if work[ref].startswith("PARKED") else ACTIVE
            if status[ref] != needed:
                self.found(
                    event,
                    f"{self.recount.name(ref)} is {status[ref]} after `{move.trigger}` with work "
                    f"{work[ref]}, which only {needed} allows.",
                    status=status[ref],
                    work=work[ref],
                )

        return check

    def after_step(self, step: Step) -> None:
        """Hold the row's `waiting` against the count."""
        if step.row is not None:
            self.compare_row(step, step.row, "waiting", len(self.recount.waiting))
