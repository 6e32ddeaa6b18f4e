"""The fold: the only code that changes an EngineState, always for one recorded fact.

Each case fires the joint table first, so that an illegal fact raises before anything is changed,
then updates what hangs on the move: queues, slots, blocks, progress. Decides nothing.
"""

from typing import assert_never

from .events import (
    Aborted,
    Admitted,
    BatchCompleted,
    BatchFailed,
    BatchRetired,
    BatchSubmitted,
    Dropped,
    Enqueued,
    Evicted,
    Fact,
    Finished,
    Grown,
    Offloaded,
    OffloadedResident,
    OutputSampled,
    Published,
    Refused,
    Resumed,
    Retired,
    Rewound,
    RunClosed,
    RunOpened,
    RunRecovered,
    Selected,
    Submitted,
    VerdictGiven,
    Yielded,
)
from .holdings import (
    QUEUED_KEY,
    Applied,
    apply_preemption,
    apply_prefix,
    drop_blocks,
    drop_snapshot,
    forget_prefixes,
    free_slot,
    hold_slot,
    move_request,
    share_blocks,
    take_blocks,
)
from .moves import CHANGE, PLAIN_MOVE, SLOT_OF, STATUS_OF, TABLE, TRIGGER_BASE, WORK_OF, fire
from .prefixes import page_keys
from .state import EngineState, Request, Ticket
from .states import FinishReason, WorkKey
from .ticket_fold import apply_ticket, forget_unsubmitted

_SELECT = TRIGGER_BASE["select"]
_OUTPUT = PLAIN_MOVE["output"]
_ENQUEUE = {key: TRIGGER_BASE.get(f"enqueue:{key}") for key in WorkKey}
_TAKEN_KEY = tuple(
    WorkKey(work.partition(":")[2]) if work.startswith("TAKEN:") else None for work in WORK_OF
)


def apply(state: EngineState, fact: Fact, seq: int, ticket: int | None) -> Applied:
    """Fold one fact into the state.

    Raises:
        IllegalTransition: the fact's move is not declared from here; the state is unchanged.
    """
    # The hot three by their very type: a class pattern that does not match costs twice a fold.
    if type(fact) is Selected:
        applied = _selected(state, fact, ticket)
    elif type(fact) is Enqueued:
        applied = _enqueued(state, fact, seq)
    elif type(fact) is OutputSampled:
        applied = _output(state, fact)
    else:
        applied = _apply_other(state, fact, seq, ticket)
    state.seq = seq
    return applied


def _apply_other(state: EngineState, fact: Fact, seq: int, ticket: int | None) -> Applied:
    match fact:
        case BatchSubmitted() | BatchCompleted() | BatchFailed() | BatchRetired():
            return apply_ticket(state, fact, seq, ticket), None
        case Submitted():
            return _submitted(state, fact, seq)
        case Refused():
            return _refused(state, fact)
        case Admitted():
            return _admitted(state, fact, seq)
        case Finished() | Aborted():
            return _ended(state, fact, seq)
        case Retired():
            return _retired(state, fact)
        case Grown():
            request = state.by_ref[fact.ref]
            take_blocks(state, request, fact.blocks)
            return PLAIN_MOVE[fact.trigger], request.blocks
        case Yielded() | Offloaded() | OffloadedResident() | Resumed() | Rewound():
            return apply_preemption(state, fact, seq)
        case Published() | Evicted():
            return apply_prefix(state, fact)
        case VerdictGiven():
            request = state.by_ref[fact.ref]
            request.verdict = fact.reason.partition(" ")[0]
            return PLAIN_MOVE[fact.trigger], request.blocks
        case Dropped():
            known = state.by_ref.get(fact.ref)
            return PLAIN_MOVE[fact.trigger], known.blocks if known else 0
        case RunRecovered():
            forget_prefixes(state, fact.evicted)
            forget_unsubmitted(state)
            return PLAIN_MOVE[fact.trigger], None
        case RunOpened() | RunClosed():
            return PLAIN_MOVE[fact.trigger], None
        case Selected() | Enqueued() | OutputSampled():
            raise AssertionError(f"{fact.trigger} is folded by itself")
        case _:
            assert_never(fact)


# ---- the hot three ---------------------------------------------------------------------------


def _selected(state: EngineState, fact: Selected, ticket: int | None) -> Applied:
    request = state.by_ref[fact.ref]
    joint = request.joint
    move = TABLE[_SELECT + joint]
    if move < 0:
        fire(joint, "select")  # raises
    assert ticket is not None, "a selection belongs to the batch being built"
    key = QUEUED_KEY[joint]
    assert key is not None
    del state.queues[key][request]
    request.joint = joint + CHANGE[move]
    request.taken = fact
    request.taken_ticket = ticket
    building = state.tickets.get(ticket)
    if building is None:
        building = state.tickets[ticket] = Ticket(refs=[])
        state.next_ticket = ticket + 1
    building.refs.append(fact.ref)
    if state.is_async:
        request.tickets_in_flight += 1
        request.undelivered += key is WorkKey.DECODE_CODA
    return move, request.blocks


def _enqueued(state: EngineState, fact: Enqueued, seq: int) -> Applied:
    request = state.by_ref[fact.ref]
    joint = request.joint
    base = _ENQUEUE[fact.work]
    assert base is not None, f"no move leads to {fact.work} by enqueue"
    move = TABLE[base + joint]
    if move < 0:
        fire(joint, fact.trigger)  # raises
    done = _TAKEN_KEY[joint]
    taken = request.taken
    assert taken is not None, f"{request.name} has no row being computed"
    if done is WorkKey.DECODE_RECURRENT:
        request.loops_done += 1
    elif done is WorkKey.DECODE_PRELUDE:
        request.loops_done = 0
    elif done is not WorkKey.DECODE_CODA:
        _prefilled(state, request, done, taken)
    request.joint = joint + CHANGE[move]
    request.taken = None
    request.queued_seq = seq
    state.queues[fact.work][request] = None
    return move, request.blocks


def _prefilled(state: EngineState, request: Request, done: WorkKey | None, taken: Selected) -> None:
    """A prompt row was computed: move the frontiers it covers."""
    end = taken.token_start + taken.token_count
    if done is WorkKey.PROMPT_ATOMIC:
        request.frontiers = [end] * len(request.frontiers)
    elif done is WorkKey.PROMPT_PRELUDE:
        request.frontiers[0] = end
    else:
        assert done is WorkKey.PROMPT_RECURRENT, f"{done} computes no prompt"
        assert taken.depth is not None, "a split prompt row has a depth"
        request.frontiers[taken.depth + 1] = end
    if request.frontiers[-1] == request.prefill_tokens:
        request.replaying = False
        request.loops_done = state.model.depths


def _output(state: EngineState, fact: OutputSampled) -> Applied:
    request = state.by_ref[fact.ref]
    assert fact.idx == len(request.outputs), f"output {fact.idx} of {request.name} is out of turn"
    request.outputs.append(fact.token_id)
    request.exit_depths.append(fact.exit_depth)
    request.logprobs.append(fact.logprob)
    if request.undelivered:
        request.undelivered -= 1
    return _OUTPUT, request.blocks


# ---- a request's life ------------------------------------------------------------------------


def _submitted(state: EngineState, fact: Submitted, seq: int) -> Applied:
    spec = fact.spec
    assert fact.ref == state.next_ref, "refs count up"
    assert spec.request_id not in state.by_id, f"{spec.request_id!r} is live"
    by_priority = state.config.scheduler.policy == "priority"
    priority = spec.params.priority if by_priority else 0
    request = Request(
        fact.ref, spec, submitted_seq=seq, priority=priority, depths=state.model.depths
    )
    if state.config.cache.enable_prefix_caching:  # the last prompt token is always computed
        request.page_keys = page_keys(spec.prompt_token_ids[:-1], state.block_size)
    move = move_request(request, fact.trigger)
    _count_generation(state, fact)
    state.by_ref[fact.ref] = request
    state.by_id[spec.request_id] = request
    state.waiting.add(request)
    state.unfinished += 1
    return move, 0


def _refused(state: EngineState, fact: Refused) -> Applied:
    _count_generation(state, fact)
    return PLAIN_MOVE[fact.trigger], 0


def _count_generation(state: EngineState, fact: Submitted | Refused) -> None:
    state.generations.note(fact.spec.request_id, fact.spec.generation)
    state.next_ref = fact.ref + 1


def _admitted(state: EngineState, fact: Admitted, seq: int) -> Applied:
    request = state.by_ref[fact.ref]
    move = move_request(request, fact.trigger)
    state.waiting.remove(request)
    for passed in state.waiting.ahead_of(request.order_key):
        passed.bypasses += 1
    hold_slot(state, request, fact.state_row)
    if fact.shared:
        share_blocks(state, request, fact.shared)
    take_blocks(state, request, fact.blocks)
    request.frontiers = [fact.cached_tokens] * len(request.frontiers)
    request.queued_seq = seq
    request.verdict = None
    state.queues[fact.work][request] = None
    return move, request.blocks


def _ended(state: EngineState, fact: Finished | Aborted, seq: int) -> Applied:
    request = state.by_ref[fact.ref]
    joint = request.joint
    move = move_request(request, fact.trigger)
    if STATUS_OF[joint] == "WAITING":
        state.waiting.remove(request)
    if (key := QUEUED_KEY[joint]) is not None:
        del state.queues[key][request]
    request.taken = None
    request.ended_seq = seq
    request.finish_reason = fact.finish_reason if isinstance(fact, Finished) else FinishReason.ABORT
    state.unfinished -= 1
    state.retiring[request] = None
    return move, request.blocks


def _retired(state: EngineState, fact: Retired) -> Applied:
    request = state.by_ref[fact.ref]
    assert request.block_ids == fact.blocks_freed, "every block comes back, and no other"
    held = SLOT_OF[request.joint] == "HELD"
    move = move_request(request, fact.trigger)
    if held:
        free_slot(state, request)
    drop_blocks(state, request)
    drop_snapshot(state, request)
    del state.retiring[request]
    del state.by_ref[fact.ref]
    del state.by_id[request.spec.request_id]
    return move, 0
