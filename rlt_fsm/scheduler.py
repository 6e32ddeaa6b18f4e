"""plan(): ask the policy, admit, fill one batch. Decides by the state alone; records as it goes."""

from itertools import islice

from .admission import admit_waiting
from .batch import Batch, Row
from .events import BatchSubmitted, Selected
from .policies import ADMIT, POLICIES, Turn, View
from .recorder import Recorder
from .state import EngineState, Request
from .states import OPERATION_OF, WorkKey


class Scheduler:
    """Builds the batches of one engine."""

    def __init__(self, state: EngineState, recorder: Recorder) -> None:
        self._state = state
        self._recorder = recorder
        self._view = View(state)
        self._policy = POLICIES[state.config.scheduler.mode]()

    def plan(self) -> Batch | None:
        """The next batch, recorded up to its submission; None where nothing can run."""
        for turn in self._policy.rank(self._view):
            if turn is ADMIT:
                admit_waiting(self._state, self._recorder)
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
            seats = min(limits.max_num_seqs - len(rows), budget)
            for request in list(islice(self._state.queues[key], seats)):
                row = make_row(self._state, request, key, budget)
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
                if not budget:
                    break
        return rows

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


def make_row(state: EngineState, request: Request, key: WorkKey, budget: int) -> Row:
    """The row that a request's pending work makes, at most `budget` tokens long."""
    spec = request.spec
    idx = len(request.outputs)
    start, count, depth, last_token = request.position, 1, None, -1
    loops_done = 0
    match key:
        case WorkKey.PROMPT_ATOMIC:
            start = request.prefilled_tokens
            chunk = state.config.scheduler.prefill_chunk_size
            count = min(budget, chunk, request.prompt_len - start)
        case WorkKey.DECODE_PRELUDE:
            last_token = request.outputs[-1]
        case WorkKey.DECODE_RECURRENT:
            depth = loops_done = request.loops_done
        case WorkKey.DECODE_CODA:
            loops_done = request.loops_done
        case _:
            raise AssertionError(f"{key} does not run in this version")
    return Row(
        spec=spec,
        work=key,
        token_start=start,
        token_count=count,
        depth=depth,
        replay=False,
        output_idx=idx,
        loops_done=loops_done,
        max_loops=loops_allowed(state, request),
        last_token=last_token,
        state_row=request.state_row,
        block_table=request.block_table,
    )


def loops_allowed(state: EngineState, request: Request) -> int:
    """The most loops the request's next output may run; a forced depth is exactly that.

    Output 0 comes from the prompt, which always runs every loop.
    """
    params = request.spec.params
    if not request.outputs:
        return state.model.depths
    if params.exit_depths is not None:
        return params.exit_depths[len(request.outputs)]
    return state.model.depths if params.max_loops is None else params.max_loops
