"""The part of S13 that follows causes: which event led to which."""

from collections.abc import Callable

from ..legality import Move
from ..reader import CAUSE, REF, SEQ, TICKET, Event
from ..recount import Recount
from ..streaks import Streak, Together, nothing

Handler = Callable[[Event], None]

# What makes a request's work pending, or makes it wait.
QUEUES = frozenset(
    {"submit", "submit_remote", "activate", "yield", "offload", "rewind", "admit", "resume"}
)


class Causes:
    """Keeps the seq of every event that can be a cause, and compares.

    `wrong(event, due)` is called for a cause that is none of those that are due. NULL always
    passes: a log need not tell causes.
    """

    KEPT_BY_TICKET = (("_submitted", int), ("_settled", int))
    KEPT_BY_REF = (("_queued", int), ("_output", int), ("_ended", int))

    def __init__(self, recount: Recount, wrong: Callable[[Event, list[int | None]], None]) -> None:
        self._recount = recount
        self._is_async = recount.config.execution.async_scheduling
        self._wrong = wrong
        self._queued: dict[int, int] = {}  # by ref: what made its work pending, or made it wait
        self._output: dict[int, int] = {}  # by ref: its last output
        self._ended: dict[int, int] = {}  # by ref: its terminal event
        self._submitted: dict[int, int] = {}  # by ticket
        self._settled: dict[int, int] = {}  # by ticket: its completion or failure

    def handler(self, move: Move) -> Handler | None:
        """Check the cause of events with this move, and remember them as causes of others."""
        handlers: dict[str, Handler] = {
            "select": self._takes_up,
            "grow": self._takes_up,
            "enqueue": self._enqueued,
            "output": self._follows_ticket,
            "drop": self._follows_ticket,
            "retire_batch": self._follows_ticket,
            "finish": self._finished,
            "abort": self._aborted,
            "retire": self._retired,
            "submit_batch": self._batch_submitted,
            "complete_batch": self._batch_settled,
            "fail_batch": self._batch_settled,
        }
        if move.trigger in ("admit", "resume"):
            return self._enters
        # What happens to a request that waits already (`rewind`) does not begin its waiting.
        if move.trigger in QUEUES and move.status is not None:
            return self._note_queued
        return handlers.get(move.trigger)

    def together(self, move: Move) -> Together | None:
        """Streaks whose causes are all the ones that are due."""
        match move.trigger:
            case "select":
                return Together(self._take_up, nothing)
            case "enqueue":
                holds = self._go_on_early if self._is_async else self._follow_results
                return Together(holds, self._note_enqueued)
            case "output":
                return Together(self._follow_tickets, self._note_outputs)
            case _:
                return None

    def _take_up(self, streak: Streak) -> bool:
        return streak.causes == list(map(self._queued.get, streak.refs))

    def _follow_tickets(self, streak: Streak) -> bool:
        return streak.causes.count(self._settled[streak.ticket]) == streak.length

    def _follow_results(self, streak: Streak) -> bool:
        outputs = self._output
        return self._follow_tickets(streak) or streak.causes == [
            outputs[ref] for ref in streak.refs
        ]

    def _go_on_early(self, streak: Streak) -> bool:
        (cause,) = set(streak.causes)
        own = self._settled.get(streak.ticket), self._submitted.get(streak.ticket)
        return cause in own or any(
            self._settled.get(number) == cause and ticket.refs.keys() >= set(streak.refs)
            for number, ticket in self._recount.in_flight.items()
        )

    def _note_enqueued(self, streak: Streak) -> None:
        self._queued.update(zip(streak.refs, streak.seqs, strict=True))

    def _note_outputs(self, streak: Streak) -> None:
        self._output.update(zip(streak.refs, streak.seqs, strict=True))

    def _note_queued(self, event: Event) -> None:
        self._queued[event[REF]] = event[SEQ]

    def _takes_up(self, event: Event) -> None:
        due = self._queued.get(event[REF])
        if event[CAUSE] != due and event[CAUSE] is not None:
            self._wrong(event, [due])

    def _enters(self, event: Event) -> None:
        self._takes_up(event)
        self._note_queued(event)

    def _follows_ticket(self, event: Event) -> None:
        ref = event[REF]
        if ref is not None:
            self._output[ref] = event[SEQ]
        due = self._settled.get(event[TICKET])
        if event[CAUSE] != due and event[CAUSE] is not None:
            self._wrong(event, [due])

    def _enqueued(self, event: Event) -> None:
        ref, cause = event[REF], event[CAUSE]
        self._queued[ref] = event[SEQ]
        if cause is None or cause == self._settled.get(event[TICKET]):
            return
        if self._is_async:
            self._goes_on_early(event)
        else:
            self._follows_output(event)

    def _goes_on_early(self, event: Event) -> None:
        """Asynchronously work goes on after a submission, or when an earlier result decides it."""
        due = [self._submitted.get(event[TICKET])]
        due += [
            self._settled.get(number)
            for number, ticket in self._recount.in_flight.items()
            if event[REF] in ticket.refs
        ]
        if event[CAUSE] not in due:
            self._wrong(event, due)

    def _finished(self, event: Event) -> None:
        self._ended[event[REF]] = event[SEQ]
        cause = event[CAUSE]
        if cause is not None and cause != self._settled.get(event[TICKET]):
            self._follows_output(event)

    def _follows_output(self, event: Event) -> None:
        output = self._output.get(event[REF])
        if event[CAUSE] != output:
            self._wrong(event, [self._settled.get(event[TICKET]), output])

    def _aborted(self, event: Event) -> None:
        self._ended[event[REF]] = event[SEQ]

    def _retired(self, event: Event) -> None:
        due = self._ended.get(event[REF])
        if event[CAUSE] != due and event[CAUSE] is not None:
            self._wrong(event, [due])

    def _batch_submitted(self, event: Event) -> None:
        self._submitted[event[TICKET]] = event[SEQ]

    def _batch_settled(self, event: Event) -> None:
        self._settled[event[TICKET]] = event[SEQ]
        due = self._submitted.get(event[TICKET])
        if event[CAUSE] != due and event[CAUSE] is not None:
            self._wrong(event, [due])
