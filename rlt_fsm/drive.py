"""drive: runs a workload on an engine, step by step. What comes of it is in `drive_result.py`.

Before every step comes a *point*: the actions that are due, in file order, then the arrivals. An
action with `when` is queued by the event that it waits for and is due at the next point. The driver
decides nothing about scheduling and reads no clock.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from .crash import crash
from .drive_result import DriveResult, RequestResult, check
from .engine import Engine
from .errors import RequestRefused, WorkloadError
from .events import Finished
from .log.port import EventCells
from .moves import MOVES
from .outputs import RequestOutput
from .prompts import prompts
from .replay import our_moves, recorded
from .states import FinishReason
from .workload import Action, Workload, in_order, needs, split_label, when_states

__all__ = [
    "DriveResult",
    "Faults",
    "OnStep",
    "RequestResult",
    "check",
    "drive",
    "require_drivable",
]

_PREEMPTIONS = frozenset(
    number for number, move in enumerate(MOVES) if move.trigger in {"yield", "offload", "rewind"}
)
_MACHINES = ("status", "work", "slot", "kv")
# Move → the (machine, state) pairs that it puts a request in.
_ENTERS = tuple(
    tuple(
        (machine, edge[1])
        for machine, edge in zip(_MACHINES, move[1:], strict=True)
        if edge is not None
    )
    for move in MOVES
)
_NOT_DRIVEN = {"pd"}

OnStep = Callable[[int, int], None]


class Faults(Protocol):
    """A runner whose device fails on demand."""

    def fail_next(self) -> None:
        """Fail the next batch."""

    def disarm(self) -> None:
        """Take back a `fail_next` that met no batch."""


def drive(
    engine: Engine,
    workload: Workload,
    *,
    runner_faults: Faults | None = None,
    on_step: OnStep | None = None,
) -> DriveResult:
    """Run a workload on a fresh engine until nothing is left to do, or `expect.max_steps` is hit.

    Refused requests are part of the result; the run goes on. The engine is left open.

    Args:
        engine: nothing was ever submitted to it.
        workload: its config and model are the caller's business; they are not read here.
        runner_faults: who carries out `fail` actions.
        on_step: called after every step with (steps taken, requests ended).

    Raises:
        WorkloadError: an action that this version or this runner cannot carry out, or a prompt
            that cannot be made.
    """
    require_drivable(workload, can_fail=runner_faults is not None)
    assert engine.state.next_ref == 0, "a workload is driven on a fresh engine"
    return _Drive(engine, workload, runner_faults, on_step).run()


def require_drivable(workload: Workload, *, can_fail: bool) -> None:
    """Raise WorkloadError for what `drive` could not carry out, before anything is started."""
    if missing := sorted(needs(workload) & _NOT_DRIVEN):
        raise WorkloadError(f"the workload needs {', '.join(missing)}: not in this version")
    if not can_fail and any(action.fail or action.crash for action in workload.actions):
        raise WorkloadError(
            "a 'fail' or 'crash' action needs a device that fails on demand: use model sim"
        )
    if workload.config.execution.durability == "off" and "crash" in needs(workload):
        raise WorkloadError(
            "a 'crash' action needs a log that is written: execution.durability='off' writes none"
        )
    prompts(workload)


class _Watcher:
    """An action that waits for its nth event."""

    __slots__ = ("action", "left", "state")

    def __init__(self, action: int, state: tuple[str, str], left: int) -> None:
        self.action = action
        self.state = state
        self.left = left


class _Drive:
    def __init__(
        self, engine: Engine, workload: Workload, faults: Faults | None, on_step: OnStep | None
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._faults = faults
        self._on_step = on_step
        self._prompts = prompts(workload)
        self._arrivals = deque(in_order(workload))
        self._timed = deque(_timed(workload.actions))
        self._queued: list[int] = []  # actions whose event has happened
        self._watchers: dict[tuple[str, int], list[_Watcher]] = {}
        for index, action in enumerate(workload.actions):
            if action.when is not None:
                watcher = _Watcher(index, when_states(action.when)[0], action.when.nth)
                key = split_label(action.when.request)
                self._watchers.setdefault(key, []).append(watcher)
        self._by_ref: list[tuple[str, int]] = []
        self._live: dict[str, int] = {}  # id → generation of its last accepted add
        self._results: dict[tuple[str, int], RequestResult] = {}
        self._seen_seq = 0
        self._steps = self._ended = self._preemptions = 0

    def run(self) -> DriveResult:
        engine, cut_off = self._engine, False
        while not cut_off:
            self._point()
            if engine.has_unfinished_requests():
                cut_off = self._steps >= self._workload.expect.max_steps
                if not cut_off:
                    self._step()
                continue
            self._disarm()
            if (next_at := self._next_at()) is None:
                break
            engine.advance_to(max(next_at, engine.current_step))  # a recovery took a step, too
            self._observe(engine.last_events)
        return DriveResult(
            requests=tuple(self._results[key] for key in self._by_ref),
            steps=self._steps,
            preemptions=self._preemptions,
            cut_off=cut_off,
        )

    def _next_at(self) -> int | None:
        ats = [self._workload.requests[index].at for index, _ in list(self._arrivals)[:1]]
        ats += [at for at, _ in list(self._timed)[:1]]
        return min(ats, default=None)

    # ---- a point -----------------------------------------------------------------------------

    def _point(self) -> None:
        step = self._engine.current_step
        due, self._queued = self._queued, []
        while self._timed and self._timed[0][0] <= step:
            due.append(self._timed.popleft()[1])
        for index in sorted(due):
            self._act(self._workload.actions[index])
        step = self._engine.current_step  # a recovery takes one, too
        while self._arrivals and self._workload.requests[self._arrivals[0][0]].at <= step:
            self._add(*self._arrivals.popleft())

    def _act(self, action: Action) -> None:
        if action.abort is not None:
            self._abort(action.abort)
        elif action.fail:
            assert self._faults is not None
            self._faults.fail_next()
        elif action.crash:
            self._crash()

    def _crash(self) -> None:
        """Whoever is live goes on; a recovery may find that somebody had ended."""
        engine = self._engine
        crash(engine)
        for fact in recorded(engine.log.reader(), engine.run_id, self._seen_seq):
            if isinstance(fact.fact, Finished):
                key = self._by_ref[fact.fact.ref]
                self._update(key, finish_reason=fact.fact.finish_reason.value)
                self._ended += 1
        reader = engine.log.reader()
        moves = our_moves(reader, engine.run_id)
        rows = reader.events(engine.run_id, self._seen_seq)
        self._observe([(*row[:5], moves[row[5]], *row[6:]) for row in rows])

    def _abort(self, text: str) -> None:
        request_id, generation = split_label(text)
        live = self._live.get(request_id)
        if live is None or (text != request_id and live != generation):
            return
        if self._engine.abort_request(request_id):
            self._update((request_id, live), finish_reason=FinishReason.ABORT.value)
            self._ended += 1

    def _add(self, index: int, generation: int) -> None:
        request = self._workload.requests[index]
        key = (request.id, generation)
        self._by_ref.append(key)
        self._results[key] = RequestResult(
            request_id=request.id, generation=generation, prompt_token_ids=self._prompts[index]
        )
        try:
            self._engine.add_request(request.id, self._prompts[index], request.params)
        except RequestRefused as error:
            sentence = str(error).removeprefix(f"request {request.id!r} refused: ")
            self._update(key, refused=error.code, message=sentence)
            self._ended += 1
        else:
            self._live[request.id] = generation

    def _update(self, key: tuple[str, int], **changes: object) -> None:
        self._results[key] = msgspec.structs.replace(self._results[key], **changes)

    # ---- a step ------------------------------------------------------------------------------

    def _step(self) -> None:
        before = self._engine.current_step
        for output in self._engine.step():
            self._take(output)
        # A step that only hands out the last outputs of aborted requests takes no number.
        self._steps += self._engine.current_step > before
        self._disarm()
        self._observe(self._engine.last_events)
        if self._on_step is not None:
            self._on_step(self._steps, self._ended)

    def _disarm(self) -> None:
        """A fault hits the batch in flight and no later one."""
        if self._faults is not None:
            self._faults.disarm()

    def _take(self, output: RequestOutput) -> None:
        if output.finish_reason == FinishReason.ABORT:
            return  # known since the abort; by now the id may be another generation's
        self._ended += output.finished
        self._update(
            (output.request_id, self._live[output.request_id]),
            token_ids=tuple(output.token_ids),
            exit_depths=tuple(output.exit_depths),
            finish_reason=output.finish_reason,
        )

    def _observe(self, rows: Sequence[EventCells]) -> None:
        """Count preemptions and queue the actions that new events call for."""
        if not rows or rows[0][0] <= self._seen_seq:
            return
        self._seen_seq = rows[-1][0]
        self._preemptions += sum(row[5] in _PREEMPTIONS for row in rows)
        if not self._watchers:
            return
        for row in rows:
            if row[4] is None:
                continue
            for watcher in self._watchers.get(self._by_ref[row[4]], ()):
                if watcher.left and watcher.state in _ENTERS[row[5]]:
                    watcher.left -= 1
                    if not watcher.left:
                        self._queued.append(watcher.action)


def _timed(actions: Iterable[Action]) -> list[tuple[int, int]]:
    """(at, index) of the actions that wait for a step, earliest first, then in file order."""
    return sorted((a.at, index) for index, a in enumerate(actions) if a.at is not None)
