"""Folds events into a `RunState`: the auditor's own account of what each event changes.

It follows what the log says and judges nothing: an event that cannot be folded is noted in the
state and passed over. It shares no code with the engine's fold.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable
from typing import Final

import msgspec

from rlt_fsm.log.port import RequestRow
from rlt_fsm.machines import NULL, TICKET_TRIGGERS
from rlt_fsm.states import FinishReason, RequestStatus, WorkKey

from .facts import BlockData, CloseData, FinishData, SubmitData, decode
from .fold_holdings import hold, keep_pages
from .fold_work import (
    PROMPT_KEYS,
    activate,
    admit,
    end,
    fold_ticket,
    forget_unsubmitted,
    prefilled,
    queue_again,
    rewind,
    ticket_of,
)
from .legality import MACHINE_NAMES, Move
from .reader import EXTRA, MOVE, REASON, REF, SEQ, STEP, A, B, C, D, E, Event, RunLog
from .reader import TICKET as TICKET_COLUMN
from .request_state import OrderKey, Output, RequestState, Row, Verdict
from .run_state import RunState

Handler = Callable[[Event], None]
After = Callable[[RequestState, Event, BlockData], None]  # what hangs on a move

MAX_NOTES: Final = 20
ACTIVE, WAITING = RequestStatus.ACTIVE.value, RequestStatus.WAITING.value

# What must be folded of every request, also of one that is gone: it leaves traces in the rest.
COMMON: Final = frozenset(
    {"submit", "submit_remote", "refuse", "admit", "retire", "publish", "evict", "close"}
    | {"submit_batch", "retire_batch", "recover"}
)
SETTLES: Final = frozenset({"complete_batch", "fail_batch"})  # needed of unretired tickets only
CHANGES_NOTHING: Final = frozenset({"open", "drop", "pin", "unpin"})

# What folding a garbled row raises; the row is noted.
UNREADABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, LookupError)


class NotThereError(LookupError):
    """An event of a request that was not submitted, or is retired."""


class _Priority(msgspec.Struct, frozen=True):
    priority: int = 0


class _Urgency(msgspec.Struct, frozen=True):
    """Of what `submit` tells, the priority alone."""

    params: _Priority = _Priority()


class Fold:
    """One state on its way through a log.

    `only`: follow these requests alone. Fed the events of these and those with a trigger of COMMON,
    the fold comes to the same state as if it had been fed everything, provided that the others are
    gone by the end. None: everybody.
    """

    def __init__(self, run: RunLog) -> None:
        self._requests: dict[int, RequestRow] = run.requests
        self._planes = max(1, run.model.planes)
        self._depths = run.model.depths
        self._by_priority = run.config.scheduler.policy == "priority"
        self._empty = RunState(run.info.run_id, run.config, run.model)
        self._handlers = {number: self._handler(move) for number, move in run.moves.items()}
        self.start(self._empty)

    def start(self, state: RunState, only: Container[int] | None = None) -> None:
        """Go on from a state, which stays as it is."""
        self.state = state.copy()
        self._epoch = object()
        self._only = only
        self._keys_of_others: dict[int, OrderKey] = {}  # live requests that are not followed

    def start_anew(self, only: Container[int] | None = None) -> None:
        """Go back to before the first event."""
        self.start(self._empty, only)

    def frozen(self) -> RunState:
        """The state as it is now, for good."""
        self._epoch = object()
        return self.state.copy()

    def feed(self, events: Iterable[Event]) -> None:
        """Fold events, in order."""
        handlers, event = self._handlers, None
        for event in events:
            try:
                handlers[event[MOVE]](event)
            except UNREADABLE as error:
                self._note(event, error)
        if event is not None:
            self.state.seq, self.state.step = event[SEQ], event[STEP]

    def _note(self, event: Event, error: Exception) -> None:
        notes = self.state.notes
        if isinstance(error, NotThereError):
            row = self._requests.get(event[REF])
            name = f"ref {event[REF]}" if row is None else f"{row.request_id}#{row.generation}"
            note = f"{name} is not there; what follows of it is passed over"
            if any(known.endswith(note) for known in notes):
                return
        elif isinstance(error, KeyError):
            note = f"nothing is known of {error}"
        else:
            note = str(error)
        if len(notes) < MAX_NOTES:
            notes.append(f"seq {event[SEQ]} could not be followed: {note}")

    # ---- which event does what ---------------------------------------------------------------

    def _handler(self, move: Move) -> Handler:
        if move.trigger in CHANGES_NOTHING:
            return _nothing
        if move.trigger == "select" and move.work is not None:
            return self._select(move.work[1])
        if move.trigger == "enqueue" and move.work is not None:
            return self._enqueue(*move.work)
        plain: dict[str, Handler] = {
            "output": self._output,
            "verdict": self._verdict,
            "refuse": self._refused,
            "close": self._closed,
            "recover": self._recovered,
        }
        if move.trigger in TICKET_TRIGGERS:
            return lambda event: fold_ticket(self.state, move.trigger, event)
        return plain.get(move.trigger) or self._moves(move)

    def _moves(self, move: Move) -> Handler:
        """An event that moves machines of a request, and what hangs on that."""
        after: dict[str, After] = {
            "admit": admit,
            "resume": queue_again,
            "activate": activate,
            "rewind": rewind,
            "finish": lambda request, event, _: end(
                request, event, decode(event[EXTRA], FinishData).finish_reason
            ),
            "abort": lambda request, event, _: end(request, event, FinishReason.ABORT.value),
            "transfer_done": lambda request, event, _: end(
                request, event, FinishReason.TRANSFERRED.value
            ),
        }
        then = after.get(move.trigger)
        is_new = move.trigger in ("submit", "submit_remote")

        def moved(event: Event) -> None:
            request = self._new(event) if is_new else self._own(event[REF])
            data = decode(event[EXTRA], BlockData)
            if data.share or data.publish or data.evict:
                keep_pages(self.state.prefix_pages, data, self._planes)
            if request is None:
                return
            was = request.status
            for machine, edge in zip(MACHINE_NAMES, move.edges, strict=True):
                if edge is not None:
                    setattr(request, machine, edge[1])
            if request.status != was:
                self._place_in_line(request, was)
            hold(request, move, data, event[STEP], self._planes)
            if then is not None:
                then(request, event, data)
            if was == ACTIVE and request.status == WAITING:
                request.queued_seq, request.queued_step = event[SEQ], event[STEP]
                request.verdict = None
            if request.status == NULL:
                del self.state.requests[request.ref]

        match move.trigger:
            case "admit":
                return _both(moved, self._bypasses)
            case "retire":
                return _both(moved, self._retired)
            case _:
                return moved

    # ---- requests ----------------------------------------------------------------------------

    def _own(self, ref: int) -> RequestState | None:
        """The request, free to be changed; None where it is not followed."""
        request = self.state.requests.get(ref)
        if request is None:
            if self._only is not None and ref not in self._only:
                return None
            raise NotThereError
        if request.epoch is not self._epoch:
            request = self.state.requests[ref] = request.copy(self._epoch)
        return request

    def _new(self, event: Event) -> RequestState | None:
        self.state.submitted += 1
        ref = event[REF]
        if self._only is not None and ref not in self._only:
            priority = decode(event[EXTRA], _Urgency).params.priority if self._by_priority else 0
            self._keys_of_others[ref] = (priority, event[SEQ])
            return None
        data = decode(event[EXTRA], SubmitData)
        row = self._requests[ref]
        request = RequestState(
            ref,
            row.request_id,
            row.generation,
            prompt_len=len(data.prompt_token_ids),
            params=data.params,
        )
        request.epoch = self._epoch
        request.order_key = (data.params.priority if self._by_priority else 0, event[SEQ])
        request.submitted_seq = request.queued_seq = event[SEQ]
        request.submitted_step = request.queued_step = event[STEP]
        request.frontiers = [0] * (self._depths + 1)
        self.state.requests[ref] = request
        return request

    def _place_in_line(self, request: RequestState, was: str) -> None:
        line, entry = self.state.line, (request.order_key, request.ref)
        if was == WAITING:
            place = bisect_left(line, entry)
            if line[place : place + 1] == [entry]:
                del line[place]
        if request.status == WAITING:
            insort(line, entry)

    def _select(self, dest: str) -> Handler:
        def select(event: Event) -> None:
            request, number = self._own(event[REF]), event[TICKET_COLUMN]
            if request is None:
                return
            request.work = dest
            depth = event[D]
            request.taken = Row(
                number, event[A], event[B], event[C], None if depth is None else int(depth),
                bool(event[E]),
            )  # fmt: skip
            if number is not None:
                ticket_of(self.state, number).refs.append(event[REF])

        return select

    def _enqueue(self, source: str, dest: str) -> Handler:
        done = source.partition(":")[2]
        is_loop = done == WorkKey.DECODE_RECURRENT
        is_prelude = done == WorkKey.DECODE_PRELUDE
        is_prompt = done in PROMPT_KEYS

        def enqueue(event: Event) -> None:
            request = self._own(event[REF])
            if request is None:
                return
            if is_loop:
                request.loops_done += 1
            elif is_prelude:
                request.loops_done = 0
            elif is_prompt and request.taken is not None:
                prefilled(request, done, request.taken)
            request.work = dest
            request.taken = None
            request.queued_seq, request.queued_step = event[SEQ], event[STEP]

        return enqueue

    def _output(self, event: Event) -> None:
        request = self._own(event[REF])
        if request is not None:
            request.outputs.append(Output(event[B], event[C], event[D]))

    def _verdict(self, event: Event) -> None:
        request = self._own(event[REF])
        if request is not None:
            request.verdict = Verdict(event[SEQ], event[STEP], event[REASON] or "")

    def _retired(self, event: Event) -> None:
        self.state.retired += 1
        self._keys_of_others.pop(event[REF], None)

    def _refused(self, event: Event) -> None:
        del event
        self.state.refused += 1

    # ---- what hangs on a move ----------------------------------------------------------------

    def _bypasses(self, event: Event) -> None:
        """A fresh request was admitted: the better ones that still wait were passed."""
        ref, requests = event[REF], self.state.requests
        key = requests[ref].order_key if ref in requests else self._keys_of_others.get(ref)
        if key is None:
            return
        for _, passed in self.state.line[: bisect_left(self.state.line, (key, ref))]:
            request = self._own(passed)
            if request is not None:
                request.bypasses += 1

    # ---- the run -----------------------------------------------------------------------------

    def _recovered(self, event: Event) -> None:
        keep_pages(self.state.prefix_pages, decode(event[EXTRA], BlockData), self._planes)
        forget_unsubmitted(self.state)

    def _closed(self, event: Event) -> None:
        self.state.outcome = decode(event[EXTRA], CloseData).outcome


def _both(first: Handler, second: Handler) -> Handler:
    def both(event: Event) -> None:
        first(event)
        second(event)

    return both


def _nothing(event: Event) -> None:
    del event
