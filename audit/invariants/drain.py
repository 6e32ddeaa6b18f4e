"""D1 and D2: what must be true of a run that has ended."""

from rlt_fsm.machines import IDLE, NULL

from ..legality import Move
from ..reader import REF, SEQ, Event
from .base import Handler, Invariant

TERMINAL = ("finish", "abort", "transfer_done")


class D1Drained(Invariant):
    """A closed run leaves nothing behind.

    At `close`: no slot is held, no block referenced (blocks that only the prefix cache keeps
    excepted), no work pending or parked, no ticket unretired, no snapshot on the host, no state row
    owned.
    """

    id = "D1"

    def handler(self, move: Move) -> Handler | None:
        """Only `close` matters."""
        return self._closed if move.trigger == "close" else None

    def _closed(self, event: Event) -> None:
        recount = self.recount
        left = {
            "slots held": len(recount.slot_holders),
            "blocks referenced": recount.blocks.referenced,
            "requests with work": sum(1 for work in recount.work if work != IDLE),
            "tickets in flight": len(recount.in_flight),
            "host blocks": recount.blocks.host_blocks,
            "state rows owned": len(recount.blocks.state_rows),
        }
        if not any(left.values()):
            return
        tell = ", ".join(f"{count} {what}" for what, count in left.items() if count)
        self.found(
            event,
            f"The run is closed with {tell}.",
            left={what: count for what, count in left.items() if count},
            requests=[
                recount.name(ref) for ref, status in enumerate(recount.status) if status != NULL
            ][:20],
            tickets=recount.numbers_in_flight,
        )


class D2OneEnd(Invariant):
    """Every generation that was submitted ends once and is retired once.

    The terminal events are `finish`, `abort` and `transfer_done` (an `abort` to TRANSFERRING only
    begins the end). A second terminal event or retire of a generation is found at once, a missing
    one at `close`.
    """

    id = "D2"
    KEPT_BY_REF = (("_submitted", int), ("_ended", int), ("_retired", int))

    def prepare(self) -> None:
        """Nobody has come or gone."""
        self._submitted: dict[int, int] = {}  # ref → seq of its submit
        self._ended: dict[int, int] = {}  # ref → seq of its terminal event
        self._retired: dict[int, int] = {}  # ref → seq of its retire

    def handler(self, move: Move) -> Handler | None:
        """The beginning and the ends."""
        if move.trigger == "close":
            return self._closed
        if move.trigger in ("submit", "submit_remote"):
            return self._note_submit
        if move.trigger == "retire":
            return self._once(self._retired, "retired")
        begins_end = move.status is not None and move.status[1] == "TRANSFERRING"
        if move.trigger in TERMINAL and not begins_end:
            return self._once(self._ended, "ended")
        return None

    def _note_submit(self, event: Event) -> None:
        self._submitted[event[REF]] = event[SEQ]

    def _once(self, seen: dict[int, int], what: str) -> Handler:
        def check(event: Event) -> None:
            ref = event[REF]
            if ref in seen:
                self.found(
                    event,
                    f"{self.recount.name(ref)} is {what} a second time (first at seq {seen[ref]}).",
                    part="twice",
                    first_seq=seen[ref],
                )
            seen.setdefault(ref, event[SEQ])

        return check

    def _closed(self, event: Event) -> None:
        for ref, seq in self._submitted.items():
            missing = [
                what
                for what, seen in (("terminal event", self._ended), ("retire", self._retired))
                if ref not in seen
            ]
            if missing:
                self.found_of(
                    ref,
                    event,
                    f"{self.recount.name(ref)}, submitted at seq {seq}, has no "
                    f"{' and no '.join(missing)}.",
                    submitted_seq=seq,
                    ended_seq=self._ended.get(ref),
                )
