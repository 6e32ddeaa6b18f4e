"""An engine's state as text, and back: where a run goes on whose first events are archived.

All that the fold of those events comes to, but for how often ids were used, which stays in the log.
What follows from the rest (the waiting line, who holds blocks, who references each) is built anew.
"""

from functools import partial

import msgspec

from .batch import BlockTable, ModelFacts, RequestSpec
from .config import EngineConfig
from .events import Selected
from .state import EngineState, Request, Ticket
from .states import WorkKey

# What makes a Request anew is in `_Saved` by name; the rest is copied as it is.
_PLAIN = (
    "joint", "frontiers", "replaying", "page_keys", "loops_done", "outputs", "exit_depths",
    "logprobs", "blocks", "block_table", "covered_tokens", "host_blocks", "state_row", "taken",
    "taken_ticket", "tickets_in_flight", "undelivered", "queued_seq", "ended_seq", "finish_reason",
    "bypasses", "verdict",
)  # fmt: skip


class _Taken(msgspec.Struct, frozen=True):
    """The row that a request was last selected for."""

    row: int
    token_start: int
    token_count: int
    depth: int | None
    replay: bool


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One live request."""

    ref: int
    spec: RequestSpec
    order_key: tuple[int, int]
    joint: int
    frontiers: list[int]
    replaying: bool
    page_keys: tuple[bytes, ...]
    loops_done: int
    outputs: list[int]
    exit_depths: list[int]
    logprobs: list[float | None]
    blocks: int
    block_table: BlockTable
    covered_tokens: int
    host_blocks: int
    state_row: int
    taken: _Taken | None
    taken_ticket: int
    tickets_in_flight: int
    undelivered: int
    queued_seq: int
    ended_seq: int
    finish_reason: str | None
    bypasses: int
    verdict: str | None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides; requests by their refs, in the order of each queue."""

    seq: int
    next_ref: int
    next_ticket: int
    requests: list[_Saved]
    waiting: list[int]
    queues: dict[WorkKey, list[int]]
    tickets: dict[int, Ticket]
    free_state_rows: list[int]
    free_blocks: tuple[int, ...]
    prefixes: list[tuple[bytes, tuple[int, ...]]]
    host_blocks: int
    slots_held: int
    unfinished: int
    prefill_batches_since_recurrent: int
    prelude_batches_since_prompt_recurrent: int
    last_works: tuple[WorkKey, ...]


def to_json(state: EngineState) -> str:
    """The state as text."""
    saved = _State(
        seq=state.seq,
        next_ref=state.next_ref,
        next_ticket=state.next_ticket,
        requests=[_save(request) for request in state.by_ref.values()],
        waiting=[request.ref for request in state.waiting],
        queues={key: [request.ref for request in queue] for key, queue in state.queues.items()},
        tickets=state.tickets,
        free_state_rows=state.free_state_rows,
        free_blocks=state.pool.free_ids(),
        prefixes=state.prefixes.entries(),
        host_blocks=state.host_blocks,
        slots_held=state.slots_held,
        unfinished=state.unfinished,
        prefill_batches_since_recurrent=state.prefill_batches_since_recurrent,
        prelude_batches_since_prompt_recurrent=state.prelude_batches_since_prompt_recurrent,
        last_works=state.last_works,
    )
    return msgspec.json.encode(saved).decode()


def from_json(text: str, config: EngineConfig, model: ModelFacts) -> EngineState:
    """The state of a run with this header.

    Raises:
        msgspec.MsgspecError: the text is not that of a state.
    """
    saved = msgspec.json.decode(text, type=_State)
    state = EngineState(config, model)
    for name in (
        "seq", "next_ref", "next_ticket", "tickets", "free_state_rows", "host_blocks",
        "slots_held", "unfinished", "prefill_batches_since_recurrent",
        "prelude_batches_since_prompt_recurrent", "last_works",
    ):  # fmt: skip
        setattr(state, name, getattr(saved, name))
    for request in map(partial(_load, model=model), saved.requests):
        state.by_ref[request.ref] = state.by_id[request.spec.request_id] = request
        if request.blocks:
            state.holders.add(request)
        if request.finish_reason is not None:
            state.retiring[request] = None
    for ref in saved.waiting:
        state.waiting.add(state.by_ref[ref])
    for key, refs in saved.queues.items():
        state.queues[key] = dict.fromkeys(state.by_ref[ref] for ref in refs)
    for page_key, page in saved.prefixes:  # the oldest first
        state.prefixes.add((page_key,), [page])
    cached = [block for _, page in saved.prefixes for block in page]
    tables = [request.block_ids for request in state.by_ref.values()]
    state.pool.restore(saved.free_blocks, tables, cached)
    return state


def _save(request: Request) -> _Saved:
    values = {name: getattr(request, name) for name in _PLAIN}
    if request.taken is not None:
        row = request.taken
        values["taken"] = _Taken(row.row, row.token_start, row.token_count, row.depth, row.replay)
    return _Saved(ref=request.ref, spec=request.spec, order_key=request.order_key, **values)


def _load(saved: _Saved, model: ModelFacts) -> Request:
    priority, submitted_seq = saved.order_key
    request = Request(
        saved.ref,
        saved.spec,
        submitted_seq=submitted_seq,
        priority=priority,
        depths=model.depths,
    )
    for name in _PLAIN:
        setattr(request, name, getattr(saved, name))
    if saved.taken is not None:
        request.taken = Selected(saved.ref, *msgspec.structs.astuple(saved.taken))
    return request
