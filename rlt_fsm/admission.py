"""Admission: which waiting requests may enter, and what it costs them. Decides and records."""

from .blocks import blocks_needed
from .events import Admitted
from .recorder import Recorder
from .state import EngineState, Request
from .states import WorkKey


def admit_waiting(state: EngineState, recorder: Recorder) -> int:
    """Admit in order-key order while slots and blocks last; return how many entered.

    At most `admission_scan_limit` requests are looked at. A request that does not fit may be passed
    by worse ones until it was passed `max_admission_bypasses` times; then the scan stops at it.
    """
    if not state.has_slot() or not len(state.waiting):
        return 0
    limits = state.config.scheduler
    admitted = 0
    passed: list[Request] = []
    for request in state.waiting.first(limits.admission_scan_limit):
        if not state.has_slot():
            break
        need = blocks_at_admission(state, request)
        if need <= state.pool.free:
            _admit(state, recorder, request, need)
            admitted += 1
        else:
            passed.append(request)
        if any(request.bypasses >= limits.max_admission_bypasses for request in passed):
            break
    return admitted


def blocks_at_admission(state: EngineState, request: Request) -> int:
    """Blocks a request must find free to enter: its whole demand, so that it can always finish."""
    return blocks_needed(request.capacity_tokens, state.config.cache.block_size, state.model.planes)


def _admit(state: EngineState, recorder: Recorder, request: Request, need: int) -> None:
    recorder.record(
        Admitted(
            request.ref,
            WorkKey.PROMPT_ATOMIC,
            blocks_needed=need,
            cached_tokens=0,
            state_row=state.free_state_rows[-1],
            blocks=state.pool.peek(need),
        ),
        cause=request.submitted_seq,
    )
