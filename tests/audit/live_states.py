"""The engine's live state and the auditor's in one form, so that tests can compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from audit import RequestState, RunState
from rlt_fsm import Engine
from rlt_fsm.state import EngineState, Request

Plain = dict[str, object]


def of_engine(state: EngineState) -> Plain:
    """Everything that `EngineState.as_dict` tells, but for what only the engine needs: the order of
    its free stacks, and the hashes of pages.
    """
    live = state.as_dict()
    requests = {r.ref: _of_live(r) for r in state.by_ref.values()}
    assert live["ids"] == {r.spec.request_id: ref for ref, r in state.by_ref.items()}
    return {
        "seq": live["seq"],
        "next_ref": live["next_ref"],
        "next_ticket": live["next_ticket"],
        "requests": requests,
        "waiting": live["waiting"],
        "queues": live["queues"],
        "tickets": live["tickets"],
        "slots_held": live["slots_held"],
        "free_state_rows": sorted(state.free_state_rows),
        "free_blocks": sorted(state.pool.free_ids()),
        "prefix_only": live["prefix_only"],
        "prefix_pages": [page for _, page in state.prefixes.entries()],
        "host_blocks": live["host_blocks"],
        "unfinished": live["unfinished"],
        "fairness": (
            live["prefill_batches_since_recurrent"],
            live["prelude_batches_since_prompt_recurrent"],
            tuple(str(work) for work in state.last_works),
        ),
    }


def _of_live(request: Request) -> Plain:
    taken = request.taken
    return {
        "name": request.name,
        "prompt_len": request.prompt_len,
        "max_tokens": request.spec.params.max_tokens,
        "states": (request.status, request.work, request.slot, request.kv),
        "order_key": request.order_key,
        "submitted_seq": request.submitted_seq,
        "frontiers": request.frontiers[:],
        "replaying": request.replaying,
        "prefill_tokens": request.prefill_tokens,
        "loops_done": request.loops_done,
        "outputs": list(zip(request.outputs, request.exit_depths, request.logprobs, strict=True)),
        "block_table": tuple(tuple(plane) for plane in request.block_table),
        "blocks": request.blocks,
        "host_blocks": request.host_blocks,
        "state_row": None if request.state_row < 0 else request.state_row,
        "taken": None
        if taken is None
        else (
            request.taken_ticket,
            taken.row,
            taken.token_start,
            taken.token_count,
            taken.depth,
            taken.replay,
        ),
        "queued_seq": request.queued_seq,
        "ended_seq": None if request.ended_seq < 0 else request.ended_seq,
        "finish_reason": request.finish_reason,
        "bypasses": request.bypasses,
        "verdict": request.verdict,
    }


def of_log(state: RunState) -> Plain:
    """The same of a state that the log gave."""
    assert state.notes == []
    return {
        "seq": state.seq,
        "next_ref": state.submitted + state.refused,
        "next_ticket": state.next_ticket,
        "requests": {ref: _of_logged(request) for ref, request in state.requests.items()},
        "waiting": [request.ref for request in state.waiting],
        "queues": {key: [r.ref for r in queue] for key, queue in state.queues.items()},
        "tickets": {n: (t.state, t.refs) for n, t in state.tickets.items()},
        "slots_held": len(state.slot_holders),
        "free_state_rows": state.free_state_rows,
        "free_blocks": state.free_blocks,
        "prefix_only": len(state.prefix_only),
        "prefix_pages": list(state.prefix_pages.values()),
        "host_blocks": state.host_blocks,
        "unfinished": state.unfinished,
        "fairness": (
            state.prefill_batches_since_recurrent,
            state.prelude_batches_since_prompt_recurrent,
            state.last_works,
        ),
    }


def _of_logged(request: RequestState) -> Plain:
    verdict = request.verdict
    return {
        "name": f"{request.request_id}#{request.generation}",
        "prompt_len": request.prompt_len,
        "max_tokens": request.params.max_tokens,
        "states": (request.status, request.work, request.slot, request.kv),
        "order_key": request.order_key,
        "submitted_seq": request.submitted_seq,
        "frontiers": request.frontiers,
        "replaying": request.is_replaying,
        "prefill_tokens": request.prefill_tokens,
        "loops_done": request.loops_done,
        "outputs": [tuple(output) for output in request.outputs],
        "block_table": request.block_table,
        "blocks": request.blocks,
        "host_blocks": request.host_blocks,
        "state_row": request.state_row,
        "taken": None if request.taken is None else tuple(request.taken),
        "queued_seq": request.queued_seq,
        "ended_seq": request.ended_seq,
        "finish_reason": request.finish_reason,
        "bypasses": request.bypasses,
        "verdict": None if verdict is None else verdict.reason.partition(" ")[0],
    }


@contextmanager
def live_states() -> Iterator[dict[int, Plain]]:
    """The live state after every call of every engine used inside, by seq."""
    states: dict[int, Plain] = {}

    with pytest.MonkeyPatch.context() as patch:
        for name in ("add_request", "abort_request", "step", "close"):
            original = getattr(Engine, name)

            def call(engine: Engine, *args: object, _original=original, **kwargs: object) -> object:
                try:
                    return _original(engine, *args, **kwargs)
                finally:
                    states[engine.state.seq] = of_engine(engine.state)

            patch.setattr(Engine, name, call)
        yield states
