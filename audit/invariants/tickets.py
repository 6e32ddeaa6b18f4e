"""S11: every ticket runs its course once."""

from rlt_fsm.machines import COMPLETED, NULL, RETIRED, SUBMITTED, TAKEN, TICKET

from ..legality import Move
from ..reader import SEQ, Event
from ..reader import TICKET as TICKET_COLUMN
from ..recount import Step, Ticket
from .base import Handler, Invariant

TAKEN_STATES = frozenset(TAKEN.values())


class S11Tickets(Invariant):
    """Every ticket is submitted, then completed or failed, then retired, each once.

    (a) Each ticket event continues the ticket machine from the ticket's state (submit_batch:
    NULL→SUBMITTED, complete_batch: →COMPLETED, fail_batch: →FAILED, retire_batch: →RETIRED). (b) A
    batch is submitted only while fewer than max_in_flight tickets (synchronously: none) are
    unretired. (c) When a ticket is retired, something has come of each of its rows: no request of
    it has its work still TAKEN, unless a later ticket has a row of it too. (d) A step's row names
    the ticket that the step submitted, or none. (e) What was in flight is lost in a crash: in the
    step of `recover` no ticket is submitted or completed, and none is left unretired. That no
    ticket is left at the end is D1's.
    """

    id = "S11"

    def prepare(self) -> None:
        """How many tickets may be unretired at once."""
        execution = self.recount.config.execution
        self._limit = execution.max_in_flight if execution.async_scheduling else 1

    def handler(self, move: Move) -> Handler | None:
        """The edges of the ticket machine, as declared."""
        edges = {
            t["source"]: t["dest"] for t in TICKET["transitions"] if t["trigger"] == move.trigger
        }
        if not edges:
            return None
        (dest,) = set(edges.values())

        def check(event: Event) -> None:
            number = event[TICKET_COLUMN]
            ticket = self.recount.tickets.get(number)
            if ticket is None:
                ticket = self.recount.tickets[number] = Ticket(number)
            if ticket.state not in edges:
                self._wrong(event, move, ticket)
            elif self.recount.is_recovering and dest in (SUBMITTED, COMPLETED):
                self.found(
                    event,
                    f"`{move.trigger}` of ticket {number} in a recovery: what was in flight is "
                    "lost, and nothing is submitted yet.",
                    ticket=number,
                )
            ticket.state = dest
            self._note(event, ticket)

        return check

    def _wrong(self, event: Event, move: Move, ticket: Ticket) -> None:
        is_ = "not submitted" if ticket.state == NULL else ticket.state
        self.found(
            event,
            f"`{move.trigger}` of ticket {ticket.number}, which is {is_}.",
            ticket=ticket.number,
            state=ticket.state,
            submitted_seq=ticket.submitted_seq or None,
        )

    def _note(self, event: Event, ticket: Ticket) -> None:
        in_flight = self.recount.in_flight
        if ticket.state == SUBMITTED:
            if len(in_flight) >= self._limit:
                numbers = self.recount.numbers_in_flight
                self.found(
                    event,
                    f"Ticket {ticket.number} is submitted while {numbers} "
                    f"{'is' if len(in_flight) == 1 else 'are'} not retired; at most {self._limit} "
                    "may be in flight.",
                    ticket=ticket.number,
                    in_flight=numbers,
                    max_in_flight=self._limit,
                )
            ticket.submitted_seq = event[SEQ]
            in_flight[ticket.number] = ticket
        elif ticket.state == RETIRED:
            in_flight.pop(ticket.number, None)
            self._check_outcomes(event, ticket)
            ticket.refs = {}

    def _check_outcomes(self, event: Event, ticket: Ticket) -> None:
        work, in_flight = self.recount.work, self.recount.in_flight
        if TAKEN_STATES.isdisjoint([work[ref] for ref in ticket.refs]):
            return
        for ref, row in ticket.refs.items():
            if work[ref] not in TAKEN_STATES or any(ref in t.refs for t in in_flight.values()):
                continue
            self.found_of(
                ref,
                event,
                f"Ticket {ticket.number} is retired, but nothing has come of its row {row}, "
                f"{self.recount.name(ref)}, which is still {work[ref]}.",
                ticket=ticket.number,
                row=row,
                work=work[ref],
            )

    def after_step(self, step: Step) -> None:
        """Hold the row's `ticket` against the step's batch; a recovery leaves none in flight."""
        if step.is_recovery and self.recount.in_flight:
            left = self.recount.numbers_in_flight
            self.found_in_step(
                step,
                f"The recovery of step {step.number} leaves tickets {left} unretired; they are "
                "lost.",
                in_flight=left,
            )
        if step.row is not None:
            self.compare_row(step, step.row, "ticket", step.ticket)
