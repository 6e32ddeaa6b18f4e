"""Executing batches through the kernels: decode steps as few launches over fixed buffers.

Prompts, replays and mixed batches take the general way of `Executor`, through the same fused loop,
which is captured too for batches of prompt rows alone.
Nothing waits for the device but the results that decide: who may leave, and which tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from rlt_fsm.batch import Batch, BatchResult, Row
from rlt_fsm.states import WorkKey

from . import inputs
from .cuda_graphs import StepGraphs, bucket_sizes, prompt_sizes
from .ends import PlainEnds
from .execution import Executor, Options
from .fused import FusedLoop
from .kernels.backend import TritonAttention
from .kernels.paging import PagedRows
from .kernels.step_inputs import StepInputs
from .kv_cache import KVCache, Span
from .models.ouro import OuroModel
from .pending import Finish, Pending
from .progress import Progress, silent
from .prompt_loop import PromptLoop
from .resident import ResidentState
from .staged_steps import coda_result, loop_result, put_coda, put_loop, put_prelude
from .staging import Stage, StagingRing, step_outputs

_PROMPT = "prompt"


class DeviceExecutor(Executor):
    """`Executor` over kernels, fused weights and persistent buffers.

    `loop` holds the fused weights; state rows are slots of the attention's tables, which must have
    room for all of them from the start, for graphs keep their address. `prompts` is where the rows
    of prompts lie; None where results may not depend on the batch, and every position is computed
    as a decode row.
    """

    def __init__(
        self,
        model: OuroModel,
        cache: KVCache,
        attention: TritonAttention,
        resident: ResidentState,
        options: Options,
        loop: FusedLoop,
        prompts: PromptLoop | None = None,
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
        self._prompts = prompts
        self._graphs: StepGraphs | None = None
        self._prompt_graphs: StepGraphs | None = None
        state_rows, device = resident.hidden.shape[0], cache.device
        capacity = loop.padded(state_rows)
        self.inputs = StepInputs(capacity, device)
        self._outputs = step_outputs(capacity, device)
        self._gate_logits = torch.zeros(capacity, dtype=torch.float32, device=device)
        self._stages = StagingRing(options.max_in_flight, capacity, device)

    def steps(self) -> dict[str, Callable[[int], object]]:
        """The launches of a decode step by name, for so many rows: what graphs capture."""
        return {
            "prelude": self._launch_prelude,
            "recurrent": self._launch_loop,
            "coda": self._launch_coda,
        }

    def capture(self, progress: Progress = silent) -> int:
        """Capture every decode step and the prompts' loop at every bucket; how many graphs.

        Raises:
            torch.OutOfMemoryError: no memory for them; batches are launched one by one.
        """
        graphs = StepGraphs(self.buckets(), self._device)
        sizes = prompt_sizes(self._prompts.most) if self._prompts is not None else []
        decodes = len(self.buckets()) * len(self.steps())
        total = decodes + len(sizes)
        with torch.inference_mode():
            graphs.capture(self.steps(), lambda done, _: progress(done, total))
            if self._prompts is not None:
                prompts = StepGraphs(sizes, self._device)
                launches = {_PROMPT: self._prompts.launch}
                prompts.capture(launches, lambda done, _: progress(decodes + done, total))
                self._prompt_graphs = prompts
        self._graphs = graphs
        return total

    def buckets(self) -> list[int]:
        """Sizes of decode launches that are worth a graph."""
        most = self._resident.hidden.shape[0]
        return sorted({self._fused.padded(size) for size in bucket_sizes(most)})

    def start(self, batch: Batch) -> Pending:
        """Launch a batch; batches of decode rows alone take the short way."""
        match batch.works:
            case (WorkKey.DECODE_PRELUDE,):
                launch = self._decode_prelude
            case (WorkKey.DECODE_RECURRENT,):
                launch = self._decode_loop
            case (WorkKey.DECODE_CODA,):
                launch = self._decode_coda
            case _:
                return super().start(batch)
        state_rows = {row.state_row for row in batch.rows}
        assert len(state_rows) == len(batch.rows), "a state row has one owner"
        stage = self._stages.take()
        try:
            finish = launch(batch, stage)
        except BaseException:
            self._settle()  # the device may still read what was staged
            self._stages.give_back(stage)
            raise
        if stage.done is not None:
            stage.done.record()
        return Pending(batch.ticket, finish, stage.done, partial(self._stages.give_back, stage))

    # ---- decode steps ------------------------------------------------------------------------

    def _decode_prelude(self, batch: Batch, stage: Stage) -> Finish:
        count = self._rows_for("prelude", len(batch.rows))
        put_prelude(stage, batch.rows, count)
        self._launch("prelude", count, stage)
        return partial(BatchResult, batch.ticket)

    def _decode_loop(self, batch: Batch, stage: Stage) -> Finish:
        rows, count = batch.rows, self._rows_for("recurrent", len(batch.rows))
        self._keep_tables(rows)
        planes = [self._cache.plane(depth) for depth in inputs.depths_of(rows)]
        positions = [row.token_start for row in rows]
        owners, tables = [inputs.owner_of(row) for row in rows], [row.block_table for row in rows]
        self._cache.advance(owners, tables, planes, positions)
        put_loop(stage, rows, planes, positions, count)
        self._launch("recurrent", count, stage)
        stage.fetch_exits(self._outputs)
        return partial(loop_result, stage, batch)

    def _decode_coda(self, batch: Batch, stage: Stage) -> Finish:
        rows, count = batch.rows, self._rows_for("coda", len(batch.rows))
        self._keep_tables(rows)
        self._cache.count_exits(inputs.exited_tokens(rows, self._full_depth))
        put_coda(stage, rows, count)
        self._launch("coda", count, stage)
        stage.fetch_sampled(self._outputs)
        return partial(coda_result, stage, batch)

    def _keep_tables(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if self._paged.tables.put(row.state_row, row.block_table):
                self._cache.check_table(inputs.owner_of(row), row.block_table)

    def _rows_for(self, step: str, rows: int) -> int:
        """How many rows a launch gets: padding rows touch nothing."""
        if self._graphs is not None and (bucket := self._graphs.bucket(step, rows)):
            return bucket
        return self._fused.padded(rows)

    def _launch(self, step: str, count: int, stage: Stage) -> None:
        self.inputs.send(stage.numbers)
        if self._graphs is not None and self._graphs.replay(step, count):
            return
        self.steps()[step](count)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    # ---- launches ----------------------------------------------------------------------------

    def _launch_prelude(self, count: int) -> None:
        step, resident = self.inputs.prelude(count), self._resident
        weight = self._network.model.embed_tokens.weight
        last, survival = resident.tokens, resident.gate.survival
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
            resident.gate.survival, self._gate_logits[:count], out.exits[:count],
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
            logits, step.sampling, out.tokens[:count], out.logprobs[:count], self._resident.tokens
        )

    # ---- the general way ---------------------------------------------------------------------

    def _prompt_loop(self, hidden: Tensor, spans: list[Span]) -> Tensor:
        rows = hidden.shape[0]
        if self._prompt_graphs is not None:
            rows = self._prompt_graphs.bucket(_PROMPT, rows) or rows
        if self._prompts is None or not self._prompts.holds(spans, rows):
            return super()._prompt_loop(hidden, spans)
        return self._prompts.run(hidden, spans, rows, self._launch_prompt)

    def _launch_prompt(self, rows: int) -> None:
        assert self._prompts is not None
        if self._prompt_graphs is None or not self._prompt_graphs.replay(_PROMPT, rows):
            self._prompts.launch(rows)

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
