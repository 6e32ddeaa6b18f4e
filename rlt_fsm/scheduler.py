"""plan(): ask the policy, admit, fill one batch. Decides by the state alone; records as it goes."""

from .admission import Admission
from .batch import Batch, Row, Runner
from .demand import growth_demand
from .events import BatchSubmitted, Grown, Selected
from .policies import ADMIT, POLICIES, Turn, View
from .preemption import Preemption
from .recorder import Recorder
from .rows import make_row, next_range, positions_needed
from .state import EngineState, Request
from .states import OPERATION_OF, WorkKey
from .verdicts import Verdicts


class Scheduler:
    """Builds the batches of one engine."""

    def __init__(
        self, state: EngineState, recorder: Recorder, runner: Runner, *, verdicts: bool = True
    ) -> None:
        self._state = state
        self._recorder = recorder
        self._view = View(state)
        self._policy = POLICIES[state.config.scheduler.mode]()
        self._verdicts = Verdicts(recorder, enabled=verdicts)
        self._preemption = Preemption(state, recorder, runner)
        self._admission = Admission(state, recorder, runner, self._preemption, self._verdicts)

    def plan(self) -> Batch | None:
        """The next batch, recorded up to its submission; None where nothing can run."""
        for turn in self._policy.rank(self._view):
            if turn is ADMIT:
                self._admission.admit()
                continue
            rows = self._fill(turn)
            if rows:
                return self._submit(turn, rows)
        return None

    def _fill(self, turn: Turn) -> list[Row]:
        """Select rows for one batch, oldest pending work first, within seats and token budget."""
        limits = self._state.config.scheduler
        budget = limits.max_num_batched_tokens
        rows: list[Row] = []
        for key in turn.works:
            queue = list(self._state.queues[key])
            for i, request in enumerate(queue):
                if not budget or len(rows) >= limits.max_num_seqs:
                    self._verdicts.give(queue[i:], f"budget tokens={budget} rows={len(rows)}")
                    break
                row = self._select(request, key, len(rows), budget)
                if row is not None:
                    rows.append(row)
                    budget -= row.token_count
        return rows

    def _select(self, request: Request, key: WorkKey, index: int, budget: int) -> Row | None:
        """Make one request's pending work row `index`; None where its blocks can't be had."""
        state = self._state
        if request not in state.queues[key]:
            return None  # preempted for a row before it
        span = next_range(state, request, key, budget)
        missing = growth_demand(state, request, positions_needed(key, span))
        if missing and not self._grow(request, missing):
            return None
        row = make_row(state, request, key, span)
        self._recorder.record(
            Selected(request.ref, index, span.start, span.tokens, span.depth, row.replay),
            ticket=state.next_ticket if not index else state.next_ticket - 1,
            cause=request.queued_seq,
        )
        return row

    def _grow(self, request: Request, missing: int) -> bool:
        if not self._preemption.make_room(request, missing, keep=[]):
            free = self._state.pool.obtainable
            self._verdicts.give([request], f"blocks need={missing} free={free}")
            return False
        self._recorder.record(
            Grown(request.ref, self._state.pool.peek(missing)), cause=request.queued_seq
        )
        return True

    def _submit(self, turn: Turn, rows: list[Row]) -> Batch:
        works = tuple(sorted({row.work for row in rows}))
        batch = Batch(
            ticket=self._state.next_ticket - 1,
            step=self._recorder.step,
            operation=OPERATION_OF[works[0]],
            works=works,
            rows=tuple(rows),
            reason=turn.reason,
        )
        tokens = sum(row.token_count for row in rows)
        self._recorder.record(
            BatchSubmitted(batch.operation, works, len(rows), tokens, turn.reason),
            ticket=batch.ticket,
        )
        return batch
