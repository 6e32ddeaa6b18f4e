"""S1: every move of a request's machines is declared, and continues from where they are."""

from rlt_fsm.machines import NULL

from ..legality import MACHINE_NAMES, Move, judge
from ..reader import REF, Event
from ..streaks import Streak, Together, nothing
from .base import Handler, Invariant


class S1Legal(Invariant):
    """Every move is declared, and continues from where its machines are.

    For each event of a request: (a) the move (which machines it moves, from where to where) is
    declared for its trigger in the joint table; (b) each machine that it moves is in the move's
    source state, recounted from the request's earlier events; (c) each machine that the trigger
    could move but this event leaves alone is in a state in which the table lets it stay (`retire`
    leaves the slot alone only where it is FREE). (d) An event that moves nothing, but `refuse` and
    `drop`, is one of a request that is there. After a finding the recount goes on from the
    event's own destination, so that one wrong row is one finding. The ticket machine is S11's.
    """

    id = "S1"

    def handler(self, move: Move) -> Handler | None:
        """A check for this move, with what the table says looked up once."""
        verdict = judge(move)
        if not move.is_of_request:
            return None if verdict.is_declared else self._moves_a_request(move)
        states = self._states()
        edges = [
            (name, of, edge[0], edge[1])
            for name, of, edge in zip(MACHINE_NAMES, states, move.edges, strict=True)
            if edge is not None
        ]
        stays = [
            (name, of, stay)
            for name, of, stay in zip(MACHINE_NAMES, states, verdict.stays, strict=True)
            if stay is not None
        ]
        if verdict.is_declared and not edges and not stays:
            return self._moves_nothing(move)
        if verdict.is_declared and not stays and len(edges) == 1:
            return self._one_machine(move, *edges[0])

        def check(event: Event) -> None:
            ref = event[REF]
            if not verdict.is_declared:
                self._undeclared(event, move)
            for name, of, allowed in stays:
                if of[ref] not in allowed:
                    self._may_not_stay(event, move, name, of[ref], allowed)
            for name, of, source, dest in edges:
                if of[ref] != source:
                    self._wrong_source(event, move, name, source, of[ref])
                of[ref] = dest

        return check

    def together(self, move: Move) -> Together | None:
        """Where one machine moves, or none, and no other is asked."""
        verdict = judge(move)
        edges = [
            (of, edge[0], edge[1])
            for of, edge in zip(self._states(), move.edges, strict=True)
            if edge is not None
        ]
        if not (move.is_of_request and verdict.is_declared) or any(verdict.stays):
            return None
        if not edges:
            status = self.recount.status
            return Together(
                lambda streak: NULL not in [status[ref] for ref in streak.refs], nothing
            )
        return self._one_machine_together(*edges[0]) if len(edges) == 1 else None

    @staticmethod
    def _one_machine_together(states: list[str], source: str, dest: str) -> Together:
        def holds(streak: Streak) -> bool:
            return [states[ref] for ref in streak.refs].count(source) == streak.length

        def note(streak: Streak) -> None:
            for ref in streak.refs:
                states[ref] = dest

        return Together(holds, note)

    def _moves_a_request(self, move: Move) -> Handler:
        """An event of a ticket or of the run whose move has edges of a request's machines."""

        def check(event: Event) -> None:
            self.found(
                event,
                f"`{move.trigger}` is no event of a request, but moves its machines.",
                part="table",
                move=move.text(),
            )

        return check

    def _moves_nothing(self, move: Move) -> Handler | None:
        """Such an event (but a refusal or a late result) is one of a request that is there."""
        if move.trigger in ("refuse", "drop"):
            return None
        status = self.recount.status

        def check(event: Event) -> None:
            if status[event[REF]] == NULL:
                self.found(
                    event,
                    f"`{move.trigger}` of {self.recount.name(event[REF])}, which is not there.",
                    part="source",
                    machine="status",
                    state=NULL,
                )

        return check

    def _states(self) -> tuple[list[str], list[str], list[str], list[str]]:
        recount = self.recount
        return recount.status, recount.work, recount.slot, recount.kv

    def _one_machine(
        self, move: Move, name: str, states: list[str], source: str, dest: str
    ) -> Handler:
        """The frequent case (`select`, `enqueue`): one machine moves, no other is asked."""

        def check(event: Event) -> None:
            ref = event[REF]
            if states[ref] != source:
                self._wrong_source(event, move, name, source, states[ref])
            states[ref] = dest

        return check

    def _wrong_source(self, event: Event, move: Move, machine: str, source: str, is_: str) -> None:
        self.found(
            event,
            f"`{move.trigger}` of {self.recount.name(event[REF])} moves {machine} from {source}, "
            f"but {machine} is {is_}.",
            part="source",
            machine=machine,
            source=source,
            state=is_,
            move=move.text(),
        )

    def _may_not_stay(
        self, event: Event, move: Move, machine: str, is_: str, allowed: frozenset[str]
    ) -> None:
        self.found(
            event,
            f"`{move.trigger}` of {self.recount.name(event[REF])} leaves {machine} in {is_}; the "
            f"table lets it stay only in {' or '.join(sorted(allowed))}.",
            part="table",
            machine=machine,
            state=is_,
            move=move.text(),
        )

    def _undeclared(self, event: Event, move: Move) -> None:
        moved = ", ".join(
            f"{name} {edge[0]}→{edge[1]}"
            for name, edge in zip(MACHINE_NAMES, move.edges, strict=True)
            if edge is not None
        )
        self.found(
            event,
            f"`{move.trigger}` of {self.recount.name(event[REF])} moves {moved or 'nothing'}; the "
            "joint table has no such move.",
            part="table",
            move=move.text(),
        )
