"""S11 and S12: every ticket runs its course once, and every result belongs to somebody."""

from rlt_fsm.machines import COMPLETED, FAILED, NULL, RETIRED, SUBMITTED, TAKEN, TICKET
from rlt_fsm.states import RequestStatus

from ..legality import Move
from ..reader import REF, SEQ, Event
from ..reader import TICKET as TICKET_COLUMN
from ..recount import Step, Ticket
from ..streaks import Streak, Together, nothing
from .base import Handler, Invariant

ACTIVE = RequestStatus.ACTIVE.value
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
                self.found(
                    event,
                    f"Ticket {ticket.number} is submitted while {sorted(in_flight)} "
                    f"{'is' if len(in_flight) == 1 else 'are'} not retired; at most {self._limit} "
                    "may be in flight.",
                    ticket=ticket.number,
                    in_flight=sorted(in_flight),
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
            left = sorted(self.recount.in_flight)
            self.found_in_step(
                step,
                f"The recovery of step {step.number} leaves tickets {left} unretired; they are "
                "lost.",
                in_flight=left,
            )
        if step.row is not None:
            self.compare_row(step, step.row, "ticket", step.ticket)


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
            case "output":
                return self._result_handler(move, (COMPLETED,))
            case "enqueue" | "finish":
                early = (SUBMITTED,) if self._is_async else ()
                return self._result_handler(move, (COMPLETED, FAILED, *early))
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

    def _result_handler(self, move: Move, states: tuple[str, ...]) -> Handler:
        tickets, status = self.recount.tickets, self.recount.status
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
        """Synchronously: results of rows of one ticket, whose requests are all ACTIVE."""
        states = (COMPLETED,) if move.trigger == "output" else (COMPLETED, FAILED)
        tickets, status = self.recount.tickets, self.recount.status

        def holds(streak: Streak) -> bool:
            ticket = tickets.get(streak.ticket)
            return (
                ticket is not None
                and len(self.recount.in_flight) <= 1
                and ticket.state in states
                and ticket.refs.keys() >= set(streak.refs)
                and [status[ref] for ref in streak.refs].count(ACTIVE) == streak.length
            )

        return Together(holds, nothing) if move.trigger in ("output", "enqueue") else None

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
