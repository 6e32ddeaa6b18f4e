"""plan(): ask the policy, admit, fill one batch. Decides by the state alone; records as it goes."""

import msgspec

from .admission import Admission
from .batch import Batch, Row, Runner
from .demand import growth_demand
from .events import BatchSubmitted, Grown, Selected
from .policies import ADMIT, POLICIES, Turn, View
from .preemption import Preemption
from .recorder import Recorder
from .rows import next_row
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
        ticket = self._state.next_ticket
        budget = limits.max_num_batched_tokens
        rows: list[Row] = []
        for key in turn.works:
            queue = list(self._state.queues[key])
            for i, request in enumerate(queue):
                if not budget or len(rows) >= limits.max_num_seqs:
                    self._verdicts.give(queue[i:], f"budget tokens={budget} rows={len(rows)}")
                    break
                row = self._covered_row(request, key, budget)
                if row is None:
                    continue
                self._recorder.record(
                    Selected(
                        request.ref,
                        len(rows),
                        row.token_start,
                        row.token_count,
                        row.depth,
                        row.replay,
                    ),
                    ticket=ticket,
                    cause=request.queued_seq,
                )
                rows.append(row)
                budget -= row.token_count
        return rows

    def _covered_row(self, request: Request, key: WorkKey, budget: int) -> Row | None:
        """The row of a request's pending work, its positions in blocks; None where they can't be
        had, or where the request was preempted for a row before it.
        """
        state = self._state
        if request not in state.queues[key]:
            return None
        row = next_row(state, request, key, budget)
        end = row.token_start + row.token_count
        if end <= request.covered_tokens:
            return row
        if not self._grow(request, growth_demand(state, request, end)):
            return None
        return msgspec.structs.replace(row, block_table=request.block_table)

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
