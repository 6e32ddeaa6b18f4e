"""From the rows of a decode batch to the columns of its stage, and from the stage to its result."""

from collections.abc import Sequence

from rlt_fsm.batch import Batch, BatchResult, Row
from rlt_fsm.params import SamplingParams

from .staging import Stage


def put_prelude(stage: Stage, rows: Sequence[Row], count: int) -> None:
    """What a PRELUDE step of `count` rows reads; those behind `rows` are padding, as below."""
    stage.put_slots([row.state_row for row in rows], count)
    stage.columns.tokens[: len(rows)] = [row.last_token for row in rows]


def put_loop(
    stage: Stage,
    rows: Sequence[Row],
    planes: Sequence[int],
    positions: Sequence[int],
    count: int,
) -> None:
    """What a RECURRENT step reads; planes and positions as the cache has counted them."""
    own, columns = len(rows), stage.columns
    stage.put_slots([row.state_row for row in rows], count)
    columns.planes[:own] = planes
    columns.positions[:own] = positions
    columns.thresholds[:own] = [row.spec.params.exit_threshold for row in rows]


def put_coda(stage: Stage, rows: Sequence[Row], count: int) -> None:
    """What a CODA step reads."""
    own, columns = len(rows), stage.columns
    stage.put_slots([row.state_row for row in rows], count)
    columns.positions[:own] = [row.token_start for row in rows]
    columns.loops[:own] = [row.loops_done for row in rows]
    columns.indices[:own] = [row.output_idx for row in rows]
    params = [row.spec.params for row in rows]
    columns.temperatures[:own] = [asked.temperature for asked in params]
    columns.top_ps[:own] = [asked.top_p for asked in params]
    columns.top_ks[:own] = [asked.top_k for asked in params]
    columns.seeds[:own] = [_seed(asked) for asked in params]


def loop_result(stage: Stage, batch: Batch) -> BatchResult:
    """Who may leave."""
    exits = stage.exits[: len(batch.rows)].astype(bool).tolist()
    return BatchResult(batch.ticket, exits=exits)


def coda_result(stage: Stage, batch: Batch) -> BatchResult:
    """Which tokens were sampled, and the logprobs that were asked for."""
    own = len(batch.rows)
    wanted = [row.spec.params.logprobs is not None for row in batch.rows]
    logprobs: list[float | None] = [None] * own
    if any(wanted):
        values = stage.logprobs[:own].tolist()
        logprobs = [value if asked else None for value, asked in zip(values, wanted, strict=True)]
    return BatchResult(batch.ticket, token_ids=stage.tokens[:own].tolist(), logprobs=logprobs)


def _seed(params: SamplingParams) -> int:
    assert params.seed is not None, "the engine resolves a seed of None before a request is run"
    return params.seed
