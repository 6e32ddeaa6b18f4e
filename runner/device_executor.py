"""Executing batches through the kernels: decode steps as few launches over fixed buffers.

Prompts, replays and mixed batches take the general way of `Executor`, through the same fused loop.
Nothing waits for the device but the results that decide: who may leave, and which tokens.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.batch import Batch, BatchResult, Row
from rlt_fsm.states import WorkKey

from . import inputs
from .cuda_graphs import DecodeGraphs, bucket_sizes
from .execution import Executor, Options
from .fused import FusedLoop
from .kernels.backend import TritonAttention
from .kernels.paging import PagedRows
from .kernels.step_inputs import StepInputs, coda_columns, loop_columns, prelude_columns
from .kv_cache import Exited, KVCache, Span
from .models.ouro import OuroModel
from .progress import Progress, silent
from .resident import ResidentState


class _Outputs(NamedTuple):
    """Where a step leaves its results, by row."""

    exits: Tensor  # int8
    gate_logits: Tensor  # fp32
    tokens: Tensor  # int64
    logprobs: Tensor  # fp32
    last_tokens: Tensor  # int64, by state row


class DeviceExecutor(Executor):
    """`Executor` over kernels, fused weights and persistent buffers.

    `loop` holds the fused weights; state rows are slots of the attention's tables, which must have
    room for all of them from the start, for graphs keep their address.
    """

    def __init__(
        self,
        model: OuroModel,
        cache: KVCache,
        attention: TritonAttention,
        resident: ResidentState,
        options: Options,
        loop: FusedLoop,
    ) -> None:
        # The fused loop has its own way to rows that do not depend on their batch mates.
        whole_calls = options._replace(one_row_per_call=False)
        super().__init__(model, cache, attention, resident, whole_calls)
        self._paged = attention
        self._kernels = attention.kernels
        self._fused = loop
        self._graphs: DecodeGraphs | None = None
        state_rows, device = resident.hidden.shape[0], cache.device
        capacity = loop.padded(state_rows)
        self.inputs = StepInputs(capacity, device)
        self._outputs = _Outputs(
            torch.zeros(capacity, dtype=torch.int8, device=device),
            torch.zeros(capacity, dtype=torch.float32, device=device),
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(capacity, dtype=torch.float32, device=device),
            resident.tokens,
        )

    def steps(self) -> dict[str, Callable[[int], object]]:
        """The launches of a decode step by name, for so many rows: what graphs capture."""
        return {
            "prelude": self._launch_prelude,
            "recurrent": self._launch_loop,
            "coda": self._launch_coda,
        }

    def capture(self, progress: Progress = silent) -> int:
        """Capture every decode step at every bucket; how many graphs there are.

        Raises:
            torch.OutOfMemoryError: no memory for them; batches are launched one by one.
        """
        graphs = DecodeGraphs(self.buckets(), self._device)
        with torch.inference_mode():
            graphs.capture(self.steps(), progress)
        self._graphs = graphs
        return len(graphs)

    def buckets(self) -> list[int]:
        """Sizes of decode launches that are worth a graph."""
        most = self._resident.hidden.shape[0]
        return sorted({self._fused.padded(size) for size in bucket_sizes(most)})

    def run(self, batch: Batch) -> BatchResult:
        """See `Executor.run`; batches of decode rows alone take the short way."""
        match batch.works:
            case (WorkKey.DECODE_PRELUDE,):
                self._decode_prelude(batch.rows)
                return BatchResult(batch.ticket)
            case (WorkKey.DECODE_RECURRENT,):
                exits = self._decode_loop(batch.rows)
                return BatchResult(batch.ticket, exits=exits)
            case (WorkKey.DECODE_CODA,):
                token_ids, logprobs = self._decode_coda(batch.rows)
                return BatchResult(batch.ticket, token_ids=token_ids, logprobs=logprobs)
            case _:
                return super().run(batch)

    # ---- decode steps ------------------------------------------------------------------------

    def _decode_prelude(self, rows: Sequence[Row]) -> None:
        count = self._rows_for("prelude", rows)
        slots = [row.state_row for row in rows]
        self.inputs.send(prelude_columns(slots, [row.last_token for row in rows], count))
        self._launch("prelude", count)

    def _decode_loop(self, rows: Sequence[Row]) -> list[bool]:
        count = self._rows_for("recurrent", rows)
        depths = [row.depth for row in rows if row.depth is not None]
        positions = [row.token_start for row in rows]
        owners = [inputs.owner_of(row) for row in rows]
        self._keep_tables(rows)
        self._cache.advance(owners, depths, positions)
        self.inputs.send(
            loop_columns(
                [row.state_row for row in rows],
                [self._cache.plane(depth) for depth in depths],
                positions,
                [row.spec.params.exit_threshold for row in rows],
                count,
            )
        )
        self._launch("recurrent", count)
        exits: list[int] = self._outputs.exits[: len(rows)].tolist()
        return [bool(leaves) for leaves in exits]

    def _decode_coda(self, rows: Sequence[Row]) -> tuple[list[int], list[float | None]]:
        count = self._rows_for("coda", rows)
        self._keep_tables(rows)
        self._cache.count_exits(
            [
                Exited(inputs.owner_of(row), row.block_table, row.token_start, row.loops_done)
                for row in rows
                if row.loops_done < self._full_depth
            ]
        )
        self.inputs.send(
            coda_columns(
                [row.state_row for row in rows],
                [row.token_start for row in rows],
                [row.loops_done for row in rows],
                [_sampling(row) for row in rows],
                count,
            )
        )
        self._launch("coda", count)
        tokens: list[int] = self._outputs.tokens[: len(rows)].tolist()
        return tokens, self._logprobs(rows)

    def _logprobs(self, rows: Sequence[Row]) -> list[float | None]:
        wanted = [row.spec.params.logprobs is not None for row in rows]
        if not any(wanted):
            return [None] * len(rows)
        values: list[float] = self._outputs.logprobs[: len(rows)].tolist()
        return [value if asked else None for value, asked in zip(values, wanted, strict=True)]

    def _keep_tables(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if self._paged.tables.put(row.state_row, row.block_table):
                self._cache.check_table(inputs.owner_of(row), row.block_table)

    def _rows_for(self, step: str, rows: Sequence[Row]) -> int:
        """How many rows a launch gets: padding rows touch nothing."""
        assert len({row.state_row for row in rows}) == len(rows), "a state row has one owner"
        if self._graphs is not None and (bucket := self._graphs.bucket(step, len(rows))):
            return bucket
        return self._fused.padded(len(rows))

    def _launch(self, step: str, count: int) -> None:
        if self._graphs is not None and self._graphs.replay(step, count):
            return
        self.steps()[step](count)

    # ---- launches ----------------------------------------------------------------------------

    def _launch_prelude(self, count: int) -> None:
        step, resident = self.inputs.prelude(count), self._resident
        weight = self._model.model.embed_tokens.weight
        last, survival = self._outputs.last_tokens, resident.gate.survival
        self._kernels.embed_tokens(step.tokens, last, step.slots, weight, resident.hidden, survival)

    def _launch_loop(self, count: int) -> None:
        step, resident, cache = self.inputs.loop(count), self._resident, self._cache
        rows = PagedRows(self._paged.tables.tensor, step.slots, step.planes, step.positions)
        splits = self._paged.splits(count)

        def attend(layer: int, q: Tensor, out: Tensor) -> None:
            keys, values = cache.keys[:, layer], cache.values[:, layer]
            self._kernels.decode_attention(q, keys, values, rows, out, splits=splits)

        x, y = self._fused.first_norm(resident.hidden, step.slots)
        y = self._fused.run(x, y, rows, attend)
        gate, out = self._model.model.early_exit_gate, self._outputs
        self._kernels.route_exits(
            y, gate.weight[0], gate.bias, step.slots, step.thresholds, resident.hidden,
            resident.gate.survival, out.gate_logits[:count], out.exits[:count],
        )  # fmt: skip

    def _launch_coda(self, count: int) -> None:
        step, cache, out = self.inputs.coda(count), self._cache, self._outputs
        slots, tables = step.sampling.slots, self._paged.tables.tensor
        if tables.shape[1] > 1:
            rows = PagedRows(tables, slots, step.loops, step.positions)
            self._kernels.fill_exits(cache.keys, cache.values, rows, step.loops)
        hidden = self._resident.hidden.index_select(0, slots.clamp_min(0))
        logits = self._fused.product(hidden, self._model.lm_head.weight)
        self._kernels.sample_tokens(
            logits, step.sampling, out.tokens[:count], out.logprobs[:count], out.last_tokens
        )

    # ---- the general way ---------------------------------------------------------------------

    def _loop(self, hidden: Tensor, spans: list[Span]) -> tuple[Tensor, Tensor]:
        count = hidden.shape[0]
        padding = self._fused.padded(count) - count
        call = self._paged.plan(spans, padding)
        slots = torch.arange(count + padding, dtype=torch.int32, device=hidden.device)
        if padding:
            slots[count:] = -1
        x, y = self._fused.first_norm(hidden, slots)
        normed = self._fused.run(x, y, call.rows, call.attend)[:count]
        gate = self._model.model.early_exit_gate
        logits = (normed.float() * gate.weight[0].float()).sum(dim=-1) + gate.bias.float()
        return normed, logits


def _sampling(row: Row) -> tuple[float, float, int, int, int]:
    params = row.spec.params
    assert params.seed is not None, "the engine resolves a seed of None before a request is run"
    return params.temperature, params.top_p, params.top_k, params.seed, row.output_idx


def start_device_executor(
    model: OuroModel,
    cache: KVCache,
    attention: TritonAttention,
    resident: ResidentState,
    options: Options,
    *,
    max_model_len: int,
) -> DeviceExecutor:
    """Fuse the weights, give the block tables all the room they can need, and take the buffers."""
    pages = -(-max_model_len // cache.geometry.block_size)
    attention.tables.reserve(resident.hidden.shape[0], pages)
    loop = FusedLoop(
        model,
        cache,
        attention.kernels,
        positions=max_model_len,
        batch_invariant=options.one_row_per_call,
    )
    return DeviceExecutor(model, cache, attention, resident, options, loop)
