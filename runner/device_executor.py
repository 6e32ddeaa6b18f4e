"""Executing batches through the kernels: decode steps as few launches over fixed buffers.

Prompts, replays and mixed batches take the general way of `Executor`, through the same fused loop.
Nothing waits for the device but the results that decide: who may leave, and which tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.batch import Batch, BatchResult, Row
from rlt_fsm.states import WorkKey

from . import inputs
from .cuda_graphs import DecodeGraphs, bucket_sizes
from .ends import PlainEnds
from .execution import Executor, Options
from .fused import FusedLoop
from .kernels.backend import TritonAttention
from .kernels.paging import PagedRows
from .kernels.step_inputs import StepInputs, coda_columns, loop_columns, prelude_columns
from .kv_cache import KVCache, Span
from .models.ouro import OuroModel
from .pending import Pending
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
        ends = PlainEnds(model, one_row_per_call=False)
        super().__init__(model, ends, cache, attention, resident, whole_calls)
        self._network = model
        self._paged = attention
        self._kernels = attention.kernels
        self._fused = loop
        # Where bits may not depend on the batch, decode rows are computed as prompt rows are.
        heads = model.config.num_attention_heads, model.config.num_key_value_heads
        self._writes_while_attending = heads[0] == heads[1] and not options.one_row_per_call
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
        """See `Executor.run`."""
        return self.start(batch).result()

    def start(self, batch: Batch) -> Pending:
        """Launch a batch; batches of decode rows alone take the short way."""
        match batch.works:
            case (WorkKey.DECODE_PRELUDE,):
                return self._decode_prelude(batch)
            case (WorkKey.DECODE_RECURRENT,):
                return self._decode_loop(batch)
            case (WorkKey.DECODE_CODA,):
                return self._decode_coda(batch)
            case _:
                result = super().run(batch)
                return Pending(batch.ticket, lambda: result)

    # ---- decode steps ------------------------------------------------------------------------

    def _decode_prelude(self, batch: Batch) -> Pending:
        rows = batch.rows
        count = self._rows_for("prelude", rows)
        slots = [row.state_row for row in rows]
        self.inputs.send(prelude_columns(slots, [row.last_token for row in rows], count))
        self._launch("prelude", count)
        return Pending(batch.ticket, lambda: BatchResult(batch.ticket))

    def _decode_loop(self, batch: Batch) -> Pending:
        rows = batch.rows
        count = self._rows_for("recurrent", rows)
        spans = inputs.decode_spans(rows)
        self._keep_tables(rows)
        self._cache.advance(spans)
        self.inputs.send(
            loop_columns(
                [span.state_row for span in spans],
                [self._cache.plane(span.depth) for span in spans],
                [span.start for span in spans],
                [row.spec.params.exit_threshold for row in rows],
                count,
            )
        )
        self._launch("recurrent", count)

        def finish(exits: list[int]) -> BatchResult:
            return BatchResult(batch.ticket, exits=[bool(leaves) for leaves in exits])

        return Pending(batch.ticket, finish, self._outputs.exits[: len(rows)])

    def _decode_coda(self, batch: Batch) -> Pending:
        rows = batch.rows
        count = self._rows_for("coda", rows)
        self._keep_tables(rows)
        self._cache.count_exits(inputs.exited_tokens(rows, self._full_depth))
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
        wanted = [row.spec.params.logprobs is not None for row in rows]
        own = slice(0, len(rows))
        tokens, logprobs = self._outputs.tokens[own], self._outputs.logprobs[own]
        if not any(wanted):
            nothing: list[float | None] = [None] * len(rows)
            return Pending(batch.ticket, partial(_sampled, batch.ticket, nothing), tokens)

        def finish(ids: list[int], values: list[float]) -> BatchResult:
            told = [v if asked else None for v, asked in zip(values, wanted, strict=True)]
            return _sampled(batch.ticket, told, ids)

        return Pending(batch.ticket, finish, tokens, logprobs)

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
        weight = self._network.model.embed_tokens.weight
        last, survival = self._outputs.last_tokens, resident.gate.survival
        self._kernels.embed_tokens(step.tokens, last, step.slots, weight, resident.hidden, survival)

    def _launch_loop(self, count: int) -> None:
        step, resident, cache = self.inputs.loop(count), self._resident, self._cache
        rows = PagedRows(self._paged.tables.tensor, step.slots, step.planes, step.positions)
        splits = self._paged.splits(count)

        rotation, kernels = self._fused.rotation, self._kernels

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
            keys, values = cache.keys[:, layer], cache.values[:, layer]
            if self._writes_while_attending:
                own = (q, k, v, keys, values, rows, rotation, out)
                kernels.decode_and_write(*own, splits=splits)
            else:
                kernels.write_kv(q, k, v, keys, values, rows, rotation)
                kernels.decode_attention(q, keys, values, rows, out, splits=splits)

        x, y = self._fused.first_norm(resident.hidden, step.slots)
        y = self._fused.run(x, y, attend)
        gate, out = self._network.model.early_exit_gate, self._outputs
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
        logits = self._fused.product(hidden, self._network.lm_head.weight)
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

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
            keys, values = self._cache.keys[:, layer], self._cache.values[:, layer]
            self._kernels.write_kv(q, k, v, keys, values, call.rows, self._fused.rotation)
            call.attend(layer, q, out)

        normed = self._fused.run(x, y, attend)[:count]
        gate = self._network.model.early_exit_gate
        logits = (normed.float() * gate.weight[0].float()).sum(dim=-1) + gate.bias.float()
        return normed, logits


def _sampling(row: Row) -> tuple[float, float, int, int, int]:
    params = row.spec.params
    assert params.seed is not None, "the engine resolves a seed of None before a request is run"
    return params.temperature, params.top_p, params.top_k, params.seed, row.output_idx


def _sampled(ticket: int, logprobs: list[float | None], token_ids: list[int]) -> BatchResult:
    return BatchResult(ticket, token_ids=token_ids, logprobs=logprobs)
