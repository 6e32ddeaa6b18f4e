"""redrive: today's engine through the calls of a recorded run, each before its recorded step.

The twin of `drive.py` for logs instead of workloads. Decides nothing about scheduling: under the
same revision and configuration the engine's log is the recorded one, event for event. A crash is
made again between two steps: where the process died within one, that is taken to its end first.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from .crash import crash
from .engine import Engine
from .errors import RequestRefused
from .record import AbortCalled, Added, Call, Crashed, Record
from .states import Outcome
from .workload_form import DEFAULT_MAX_STEPS

OnStep = Callable[[int, int], None]  # (step, last step of the record)


def redrive(
    engine: Engine,
    record: Record,
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    on_step: OnStep | None = None,
) -> bool:
    """Drive a fresh engine through a record and close it; whether it had to be cut off.

    A run that was closed with live requests, or that has no end, is driven to its last step. Any
    other is driven until it drains, and cut off when nothing was given for `max_steps` steps.
    """
    assert engine.state.next_ref == 0, "a record is driven on a fresh engine"
    return _Redrive(engine, record, max_steps, on_step).run()


class _Redrive:
    def __init__(
        self, engine: Engine, record: Record, max_steps: int, on_step: OnStep | None
    ) -> None:
        self._engine = engine
        self._record = record
        self._max_steps = max_steps
        self._on_step = on_step

    def run(self) -> bool:
        engine, record = self._engine, self._record
        for call in record.calls:
            self._step_until(call.step)
            self._call(call)
        was_cut_off = False
        if record.outcome is Outcome.DRAINED:
            self._drain()
            was_cut_off = engine.state.unfinished > 0
        elif record.outcome is None and engine.has_unfinished_requests():
            self._step_until(record.last_step + 1)  # the last step may be half recorded
        self._step_until(record.last_step)
        engine.close()
        return was_cut_off

    def _step_until(self, step: int) -> None:
        """Take steps, or jump where nothing is live, until the next one is `step` or later."""
        engine = self._engine
        while engine.current_step < step:
            if engine.has_unfinished_requests():
                self._step()
            else:
                engine.advance_to(step)

    def _drain(self) -> None:
        for _ in range(self._max_steps):
            if not self._engine.has_unfinished_requests():
                return
            is_over = self._engine.current_step >= self._record.last_step
            if is_over and not self._engine.state.unfinished:
                return  # tickets of ended requests are in flight: closing waits for them
            self._step()

    def _step(self) -> None:
        self._engine.step()
        if self._on_step is not None:
            self._on_step(self._engine.current_step, self._record.last_step)

    def _call(self, call: Call) -> None:
        engine = self._engine
        match call:
            case Added(spec=spec):
                # A refusal is recorded; under another configuration it may be another's turn.
                with suppress(RequestRefused):
                    engine.add_request(spec.request_id, spec.prompt_token_ids, spec.params)
            case AbortCalled(name=(request_id, generation)):
                live = engine.state.by_id.get(request_id)
                if live is not None and live.spec.generation == generation:
                    engine.abort_request(request_id)
            case Crashed():
                crash(engine)
            case _:
                assert_never(call)
