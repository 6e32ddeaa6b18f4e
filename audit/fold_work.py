"""What events do to tickets, to the counts of recent batches and to a prompt's progress, for
`fold.py` alone.
"""

from typing import Final

import msgspec

from rlt_fsm.machines import COMPLETED, FAILED, SUBMITTED
from rlt_fsm.states import PROMPT_WORKS, WorkKey

from .facts import decode
from .reader import EXTRA, REASON, SEQ, Event
from .reader import TICKET as TICKET_COLUMN
from .run_state import RequestState, Row, RunState, TicketState

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
