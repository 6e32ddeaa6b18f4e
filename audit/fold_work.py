"""What events do to tickets, to the counts of recent batches and to a request's progress, for
`fold.py` alone.
"""

from typing import Final

import msgspec

from rlt_fsm.machines import COMPLETED, FAILED, SUBMITTED
from rlt_fsm.states import PROMPT_WORKS, RequestStatus, WorkKey

from .facts import BlockData, decode
from .reader import EXTRA, REASON, SEQ, STEP, Event
from .reader import TICKET as TICKET_COLUMN
from .request_state import RequestState, Row
from .run_state import RunState, TicketState

FINISHED: Final = RequestStatus.FINISHED.value
PROMPT_KEYS: Final = {key.value for key in PROMPT_WORKS}
DECODE_LOOPS: Final = {WorkKey.DECODE_RECURRENT.value, WorkKey.SPECULATIVE.value}


class _Batch(msgspec.Struct, frozen=True):
    """Of what `submit_batch` tells, the works alone."""

    works: tuple[str, ...] = ()


def ticket_of(state: RunState, number: int) -> TicketState:
    """The ticket, new if it is."""
    ticket = state.tickets.get(number)
    if ticket is None:
        ticket = state.tickets[number] = TicketState(number, refs=[])
        state.next_ticket = max(state.next_ticket, number + 1)
    return ticket


def fold_ticket(state: RunState, trigger: str, event: Event) -> None:
    """An event of a ticket."""
    if trigger == "retire_batch":
        state.tickets.pop(event[TICKET_COLUMN], None)
        return
    ticket = ticket_of(state, event[TICKET_COLUMN])
    if trigger == "submit_batch":
        ticket.works = decode(event[EXTRA], _Batch).works
        ticket.state, ticket.submitted_seq, ticket.reason = SUBMITTED, event[SEQ], event[REASON]
        _count_fairness(state, ticket.works)
    else:
        ticket.state = COMPLETED if trigger == "complete_batch" else FAILED
        ticket.settled_seq = event[SEQ]


def forget_unsubmitted(state: RunState) -> None:
    """`recover`: a batch that was being built never comes."""
    for number in [n for n, ticket in state.tickets.items() if ticket.submitted_seq is None]:
        del state.tickets[number]


def _count_fairness(state: RunState, works: tuple[str, ...]) -> None:
    state.last_works = works
    if not DECODE_LOOPS.isdisjoint(works):
        state.prefill_batches_since_recurrent = 0
    elif not PROMPT_KEYS.isdisjoint(works):
        state.prefill_batches_since_recurrent += 1
    if WorkKey.PROMPT_RECURRENT in works:
        state.prelude_batches_since_prompt_recurrent = 0
    elif WorkKey.PROMPT_PRELUDE in works:
        state.prelude_batches_since_prompt_recurrent += 1


def prefilled(request: RequestState, done: str, row: Row) -> None:
    """A prompt row of key `done` was computed."""
    end = (row.token_start or 0) + (row.token_count or 0)
    if done == WorkKey.PROMPT_ATOMIC:
        request.frontiers = [end] * len(request.frontiers)
    else:
        loops = 0 if done == WorkKey.PROMPT_PRELUDE else (row.depth or 0) + 1
        request.frontiers[loops] = end
    if request.frontiers[-1] == request.prefill_tokens:
        request.is_replaying = False
        request.loops_done = len(request.frontiers) - 1


def queue_again(request: RequestState, event: Event, data: BlockData) -> None:
    """`resume`: what it waits for begins anew."""
    del data
    request.queued_seq, request.queued_step = event[SEQ], event[STEP]
    request.verdict = None


def admit(request: RequestState, event: Event, data: BlockData) -> None:
    """`admit`: it begins after its cached tokens."""
    request.frontiers = [data.cached_tokens] * len(request.frontiers)
    queue_again(request, event, data)


def activate(request: RequestState, event: Event, data: BlockData) -> None:
    """`activate`: a peer computed the prompt."""
    request.frontiers = [request.prompt_len] * len(request.frontiers)
    queue_again(request, event, data)


def rewind(request: RequestState, event: Event, data: BlockData) -> None:
    """`rewind`: nothing of what was computed is left."""
    del event, data
    request.frontiers = [0] * len(request.frontiers)
    request.loops_done = 0
    request.is_replaying = True
    request.taken = None


def end(request: RequestState, event: Event, reason: str) -> None:
    """The end of a request."""
    request.taken = None
    if request.status == FINISHED:  # else a peer still reads its pages
        request.ended_seq = event[SEQ]
        request.finish_reason = request.finish_reason or reason
