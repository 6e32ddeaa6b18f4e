"""The fold's third room: what facts do to tickets, and to what counts batches.

Called by `apply` alone.
"""

from .errors import IllegalTransition
from .events import BatchSubmitted, TicketFact
from .machines import NULL, RETIRED, TICKET
from .moves import PLAIN_MOVE
from .state import EngineState
from .states import PROMPT_WORKS, WorkKey

_DEST = {(t["trigger"], t["source"]): t["dest"] for t in TICKET["transitions"]}


def apply_ticket(state: EngineState, fact: TicketFact, seq: int, ticket: int | None) -> int:
    """Fold a ticket's fact; its move. Raises IllegalTransition and changes nothing."""
    assert ticket is not None, "a ticket fact names its ticket"
    entry = state.tickets.get(ticket)
    source = entry.state if entry is not None else NULL
    dest = _DEST.get((fact.trigger, source))
    if entry is None or dest is None:
        raise IllegalTransition(f"{fact.trigger} is not declared for ticket {ticket} in {source}")
    entry.state = dest
    if isinstance(fact, BatchSubmitted):
        entry.submitted_seq = seq
        _count_fairness(state, fact)
    elif dest == RETIRED:
        del state.tickets[ticket]
        if state.is_async:
            _count_retired(state, entry.refs)
    else:
        entry.settled_seq = seq
    return PLAIN_MOVE[fact.trigger]


def _count_retired(state: EngineState, refs: list[int]) -> None:
    """One ticket less is in flight for each of its rows' requests."""
    for ref in refs:
        state.by_ref[ref].tickets_in_flight -= 1


def _count_fairness(state: EngineState, fact: BatchSubmitted) -> None:
    works = state.last_works = fact.works
    if WorkKey.DECODE_RECURRENT in works or WorkKey.SPECULATIVE in works:
        state.prefill_batches_since_recurrent = 0
    elif not PROMPT_WORKS.isdisjoint(works):
        state.prefill_batches_since_recurrent += 1
    if WorkKey.PROMPT_RECURRENT in works:
        state.prelude_batches_since_prompt_recurrent = 0
    elif WorkKey.PROMPT_PRELUDE in works:
        state.prelude_batches_since_prompt_recurrent += 1
