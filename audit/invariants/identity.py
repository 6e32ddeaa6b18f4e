"""S12: every result belongs to somebody, and every use of an id to one request."""

from rlt_fsm.machines import COMPLETED, FAILED, NULL, RETIRED, SUBMITTED
from rlt_fsm.states import RequestStatus

from ..legality import Move
from ..reader import REF, Event
from ..reader import TICKET as TICKET_COLUMN
from ..recount import Ticket
from ..streaks import Streak, Together, nothing
from .base import Handler, Invariant

ACTIVE = RequestStatus.ACTIVE.value


class S12Identity(Invariant):
    """Every result belongs to a row of its ticket and to the living use of its request's id.

    (a) `output`, `enqueue` and `finish` carry a ticket that has a row of the request, that is not
    retired, and whose results are in (COMPLETED; FAILED for `finish` and `enqueue` too; where an
    engine is asynchronous, `enqueue` may follow the submission, and `finish` too). (b) Their
    request is ACTIVE before the event: a result for a finished or retired request, so for another
    generation of its id, is a `drop`, which moves nothing. (c) A request sees its results in the
    order of submission: `output`, and `finish` that is no failure's, come from the oldest unretired
    ticket with a row of it. (d) An id is submitted again only after
    its earlier use was retired, every add of an id, refused or not, is its next generation, and
    requests come in the order of their numbers.
    """

    id = "S12"
    KEPT = (("_next_ref", int),)

    def prepare(self) -> None:
        """No id is in use."""
        self._in_use: dict[str, int] = {}  # id → ref that is submitted and not retired
        self._generations: dict[str, int] = {}  # id → latest generation
        self._next_ref = 0
        self._is_async = self.recount.config.execution.async_scheduling

    def handler(self, move: Move) -> Handler | None:
        """Results, and the beginning and end of an id's use."""
        match move.trigger:
            case "output" | "enqueue" | "finish":
                return self._result_handler(move)
            case "submit" | "submit_remote":
                return self._submitted
            case "refuse":
                return self._next_generation
            case "retire":
                return self._retired
            case _:
                return None

    def taken_up(self) -> None:
        """Ids are in the log, and who is alive in the recount."""
        for ref, row in self.recount.run.requests.items():
            if ref < self._next_ref:
                newest = self._generations.get(row.request_id, 0)
                self._generations[row.request_id] = max(newest, row.generation)
                if self.recount.status[ref] != NULL:
                    self._in_use[row.request_id] = ref

    def _may_follow(self, move: Move) -> tuple[str, ...]:
        """The states of a ticket in which such a result of it may come."""
        if move.trigger == "output":
            return (COMPLETED,)
        return (COMPLETED, FAILED, SUBMITTED) if self._is_async else (COMPLETED, FAILED)

    def _result_handler(self, move: Move) -> Handler:
        tickets, status = self.recount.tickets, self.recount.status
        states = self._may_follow(move)
        in_order = move.trigger != "enqueue"

        def check(event: Event) -> None:
            ref = event[REF]
            ticket = tickets.get(event[TICKET_COLUMN])
            if ticket is None or ref not in ticket.refs or ticket.state not in states:
                self._no_such_row(event, move, ticket)
            if status[ref] != ACTIVE:
                self._not_alive(event, move)
            elif in_order and len(self.recount.in_flight) > 1:
                self._check_turn(event, move)

        return check

    def together(self, move: Move) -> Together | None:
        """Results of rows of one ticket, in their turn, whose requests are all ACTIVE."""
        tickets, status = self.recount.tickets, self.recount.status
        states = self._may_follow(move)

        def holds(streak: Streak) -> bool:
            ticket, refs = tickets.get(streak.ticket), set(streak.refs)
            return (
                ticket is not None
                and ticket.state in states
                and ticket.refs.keys() >= refs
                and [status[ref] for ref in refs].count(ACTIVE) == streak.length
            )

        def hold_in_turn(streak: Streak) -> bool:
            return holds(streak) and all(
                ticket.number >= streak.ticket or ticket.refs.keys().isdisjoint(streak.refs)
                for ticket in self.recount.in_flight.values()
            )

        match move.trigger:
            case "enqueue":
                return Together(holds, nothing)
            case "output":
                return Together(hold_in_turn, nothing)
            case _:
                return None

    def _check_turn(self, event: Event, move: Move) -> None:
        """A request's results come from the oldest ticket in flight that has a row of it."""
        ref, number = event[REF], event[TICKET_COLUMN]
        for ticket in self.recount.in_flight.values():
            if ref not in ticket.refs:
                continue
            own = self.recount.tickets[number]
            if ticket.number < number and own.state != FAILED:
                self.found(
                    event,
                    f"`{move.trigger}` of {self.recount.name(ref)} comes from ticket {number}, "
                    f"although ticket {ticket.number}, submitted before, has a row of it and is "
                    "not retired.",
                    ticket=number,
                    earlier=ticket.number,
                )
            return

    def _no_such_row(self, event: Event, move: Move, ticket: Ticket | None) -> None:
        number = event[TICKET_COLUMN]
        if ticket is None:
            why = f"there is no ticket {number}" if number is not None else "it names no ticket"
        elif ticket.state == RETIRED:
            why = f"ticket {number} is retired"
        elif event[REF] not in ticket.refs:
            why = f"ticket {number} has no row of it"
        else:
            why = f"ticket {number} is {ticket.state}, its results are not in"
        self.found(
            event,
            f"`{move.trigger}` of {self.recount.name(event[REF])} belongs to no row: {why}.",
            ticket=number,
            state=None if ticket is None else ticket.state,
        )

    def _not_alive(self, event: Event, move: Move) -> None:
        status = self.recount.status[event[REF]]
        self.found(
            event,
            f"`{move.trigger}` of {self.recount.name(event[REF])}, which is "
            f"{'not there' if status == NULL else status}; such a result is a drop.",
            status=status,
        )

    def _submitted(self, event: Event) -> None:
        ref = event[REF]
        request_id = self.recount.run.requests[ref].request_id
        earlier = self._in_use.get(request_id)
        if earlier is not None:
            self.found(
                event,
                f"{self.recount.name(ref)} is submitted while {self.recount.name(earlier)} is "
                "not retired.",
                earlier=self.recount.name(earlier),
                status=self.recount.status[earlier],
            )
        self._in_use[request_id] = ref
        self._next_generation(event)

    def _next_generation(self, event: Event) -> None:
        ref = event[REF]
        row = self.recount.run.requests[ref]
        if ref != self._next_ref:
            self.found(
                event,
                f"{self.recount.name(ref)} comes as request number {ref}; number "
                f"{self._next_ref} is due.",
                ref=ref,
                due=self._next_ref,
            )
        self._next_ref = ref + 1
        due = self._generations.get(row.request_id, 0) + 1
        if row.generation != due:
            self.found(
                event,
                f"{row.request_id} comes as generation {row.generation}; generation {due} is due.",
                due=due,
            )
        self._generations[row.request_id] = row.generation

    def _retired(self, event: Event) -> None:
        self._in_use.pop(self.recount.run.requests[event[REF]].request_id, None)
