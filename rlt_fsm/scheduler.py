"""plan(): ask the policy, admit, fill one batch. Decides by the state alone; records as it goes."""

import msgspec

from .admission import Admission
from .batch import Batch, Row, Runner
from .demand import growth_demand
from .events import BatchSubmitted, Grown, Selected
from .policies import ADMIT, POLICIES, Turn, View
from .preemption import Preemption, Room
from .recorder import Recorder
from .rows import next_row
from .state import EngineState, Request
from .states import OPERATION_OF, WorkKey
from .verdicts import Verdicts


class LastSchedule(msgspec.Struct, frozen=True):
    """What the last step ran: its batch (None where it was empty)."""

    step: int
    batch: Batch | None


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

    @property
    def waits_for_victims(self) -> bool:
        """Whether the last plan found that what a request needs comes free when worse ones' tickets
        in flight have retired.
        """
        return self._preemption.held_for is not None

    def plan(self) -> Batch | None:
        """The next batch, recorded up to its submission; None where nothing can run."""
        self._preemption.held_for = None
        for turn in self._policy.rank(self._view):
            if turn is ADMIT:
                self._admission.admit()
                if self.waits_for_victims:
                    # To enter, or to grow since an earlier turn. Prompts that ran now would make a
                    # loop due, which puts the victims in flight anew: let them land first.
                    return None
                continue
            rows = self._fill(turn)
            if rows:
                return self._submit(turn, rows)
        return None

    def _fill(self, turn: Turn) -> list[Row]:
        """Select rows for one batch, oldest pending work first, within seats and token budget.

        The turn's first work leads: where it gets no row, the others do not run in its place.
        """
        limits, is_async = self._state.config.scheduler, self._state.is_async
        ticket = self._state.next_ticket
        budget = limits.max_num_batched_tokens
        rows: list[Row] = []
        for key in turn.works:
            if not rows and key is not turn.works[0]:
                break
            queue = list(self._state.queues[key])
            for i, request in enumerate(queue):
                if not budget or len(rows) >= limits.max_num_seqs:
                    self._verdicts.give(queue[i:], f"budget tokens={budget} rows={len(rows)}")
                    break
                if is_async and self._waits_for_results(request, key):
                    continue
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

    def _waits_for_results(self, request: Request, key: WorkKey) -> bool:
        """One output is sampled at a time; and victims of a better request come out of flight."""
        if key is WorkKey.DECODE_CODA and request.undelivered:
            self._verdicts.give([request], "in-flight undelivered=1")
            return True
        if not self._preemption.is_held(request):
            return False
        self._verdicts.give([request], "in-flight")
        return True

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
        obtainable = self._state.pool.obtainable
        room = self._preemption.block_room(request, missing - obtainable, [])
        if room is not Room.FREE:
            word = "blocks" if room is Room.NONE else "in-flight"
            self._verdicts.give([request], f"{word} need={missing} free={obtainable}")
            if room is Room.IN_FLIGHT:
                self._preemption.hold_victims(request)
            return False
        self._preemption.make_room(request, missing, [])
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
