"""TorchRunner: computes batches of a looped model on one device, synchronously.

It keeps what the engine never sees: the KV pool, the hidden state and gate of every state row, and
host snapshots. It decides nothing: rows come with their depths, tables and rules.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, assert_never

import torch
from msgspec.structs import replace
from torch import Tensor

from rlt_fsm.batch import Batch, BatchResult, BlockTable, ModelFacts, RequestSpec, Row
from rlt_fsm.config import EngineConfig
from rlt_fsm.errors import ConfigError
from rlt_fsm.states import WorkKey

from . import inputs
from .attention import AttentionBackend, create_backend
from .exit_gate import ExitGate, GateRow
from .kv_cache import KVCache, KVGeometry, Owner, Pages, Span
from .kv_sizing import take_pool
from .loading import LoadedModel, load_model, resolve_context
from .sampler import Draw, sample


class _Saved(NamedTuple):
    """A parked request on the host; `pages` is None while its KV stays on the device."""

    hidden: Tensor
    survival: float
    pages: Pages | None


class _Device(NamedTuple):
    """What `start` takes memory for."""

    cache: KVCache
    attention: AttentionBackend
    gate: ExitGate
    hidden: Tensor  # [state rows, hidden size], in the model's dtype


class TorchRunner:
    """Runs a model (see `load_model`), or one already loaded, on a CPU or a CUDA device.

    `device` and `dtype` are for a model that is read here; `auto` is CUDA where there is one, in
    bfloat16, else the CPU, in float32. A loaded model stays as it is. `max_model_len` caps the
    context.

    Raises:
        CheckpointError: the model cannot be found or used.
        ConfigError: no such device or dtype, or more context than the model has.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_model_len: int | None = None,
    ) -> None:
        loaded = model if isinstance(model, LoadedModel) else load_model(model, device, dtype)
        self._name, self._config, self._model, _ = loaded
        weight = self._model.lm_head.weight
        self._device, self._dtype = weight.device, weight.dtype
        self._max_model_len = resolve_context(max_model_len, self._config.max_position_embeddings)
        self._one_row_per_call = False
        self._on: _Device | None = None
        self._saved: dict[Owner, _Saved] = {}
        self._results: list[BatchResult] = []

    # ---- the Runner protocol -----------------------------------------------------------------

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """Take the KV pool and the state rows; see `rlt_fsm.batch.Runner`.

        Raises:
            ConfigError: something that does not run here, or a pool that does not fit.
        """
        self.close()
        if config.execution.cuda_graphs:
            raise ConfigError("execution.cuda_graphs does not run in this version: set it to False")
        geometry = self._geometry(config)
        rows = config.scheduler.max_num_seqs
        cache = take_pool(
            config.cache,
            geometry,
            max_num_seqs=rows,
            max_model_len=self._max_model_len,
            device=self._device,
        )
        backend, attention = create_backend(config.execution.attention_backend, cache)
        mode = config.exit.mode or ("ouro_delayed" if config.execution.async_scheduling else "ouro")
        hidden = torch.zeros(
            (rows, self._config.hidden_size), dtype=self._dtype, device=self._device
        )
        self._on = _Device(cache, attention, ExitGate(rows, mode, self._device), hidden)
        self._one_row_per_call = config.execution.batch_invariant
        resolved = replace(
            config,
            cache=replace(config.cache, num_blocks=cache.num_blocks, kv_cache_memory_bytes=None),
            execution=replace(config.execution, attention_backend=backend),
            exit=replace(config.exit, mode=mode),
        )
        return self._facts(geometry.planes), resolved

    def submit(self, batch: Batch) -> None:
        """Compute a batch at once; its result waits for `collect`."""
        with torch.inference_mode():
            self._results.append(self._compute(batch))

    def collect(self) -> list[BatchResult]:
        """Results in the order of submission."""
        assert self._results, "collect without a submitted batch would wait for ever"
        results, self._results = self._results, []
        return results

    def release(self, spec: RequestSpec, state_row: int) -> None:  # noqa: ARG002
        """Forget a request that is gone: what it wrote, and its snapshot.

        A state row needs no cleaning: a prompt's last chunk and every prelude overwrite it.
        """
        owner = (spec.request_id, spec.generation)
        self._started.cache.forget(owner)
        self._saved.pop(owner, None)

    def snapshot(self, spec: RequestSpec, state_row: int, block_table: BlockTable) -> None:
        """Keep a request's hidden row, gate and pages on the host.

        An empty table keeps the pages where they are (the request yields its slot only). A second
        snapshot of a parked request adds its pages; the state row is then no longer its own.
        """
        owner, on = (spec.request_id, spec.generation), self._started
        pages = on.cache.save(owner, block_table) if block_table else None
        parked = self._saved.get(owner)
        if parked is not None:
            self._saved[owner] = parked._replace(pages=pages)
            return
        hidden = on.hidden[state_row].to("cpu", copy=True)
        self._saved[owner] = _Saved(hidden, on.gate.save(state_row), pages)

    def restore(self, spec: RequestSpec, state_row: int, block_table: BlockTable) -> None:
        """Bring a snapshot back; `block_table` counts only where its pages left the device."""
        owner, on = (spec.request_id, spec.generation), self._started
        saved = self._saved[owner]
        if saved.pages is not None:
            on.cache.load(owner, block_table, saved.pages)
        on.hidden[state_row] = saved.hidden.to(self._device)
        on.gate.load(state_row, saved.survival)
        del self._saved[owner]

    def close(self) -> None:
        """Give the pool, the state rows and the snapshots back; `start` may take them again."""
        self._on = None
        self._saved.clear()
        self._results.clear()

    # ---- one batch ---------------------------------------------------------------------------

    def _compute(self, batch: Batch) -> BatchResult:
        if len(batch.works) != 1:
            raise NotImplementedError(f"a batch of {'+'.join(batch.works)} does not run here")
        work, rows = batch.works[0], batch.rows
        match work:
            case WorkKey.PROMPT_ATOMIC:
                self._prompt(rows)
                return BatchResult(batch.ticket)
            case WorkKey.DECODE_PRELUDE:
                self._prelude(rows)
                return BatchResult(batch.ticket)
            case WorkKey.DECODE_RECURRENT:
                return BatchResult(batch.ticket, exits=self._recurrent(rows))
            case WorkKey.DECODE_CODA:
                token_ids, logprobs = self._coda(rows)
                return BatchResult(batch.ticket, token_ids=token_ids, logprobs=logprobs)
            case WorkKey.PROMPT_PRELUDE | WorkKey.PROMPT_RECURRENT | WorkKey.SPECULATIVE:
                raise NotImplementedError(f"{work} does not run here")
            case _:
                assert_never(work)

    def _prompt(self, rows: tuple[Row, ...]) -> None:
        """Embed a chunk of every row and take it through all loops; keep each last position."""
        on = self._started
        for row in rows:
            if row.token_start == 0:  # also where a request starts over with fresh blocks
                on.cache.forget(inputs.owner_of(row))
        hidden = self._model.prelude(self._index(inputs.prompt_tokens(rows)))
        shares_a_plane = on.cache.geometry.planes < self._config.total_ut_steps
        for wave in inputs.prompt_waves(rows, one_position_each=shares_a_plane):
            packed = self._index(wave.packed)
            state = hidden[packed]
            for depth in range(self._config.total_ut_steps):
                state, _ = self._loop(state, wave.spans(depth))
            hidden[packed] = state
        on.hidden[self._state_rows(rows)] = hidden[self._index(inputs.last_packed_rows(rows))]

    def _prelude(self, rows: tuple[Row, ...]) -> None:
        """Embed the last output of every row; its gate starts afresh."""
        state_rows = self._state_rows(rows)
        tokens = self._index([row.last_token for row in rows])
        self._started.hidden[state_rows] = self._model.prelude(tokens)
        self._started.gate.reset(state_rows)

    def _recurrent(self, rows: tuple[Row, ...]) -> list[bool]:
        """One loop of every row at its own depth; may each leave?"""
        on = self._started
        state_rows = self._state_rows(rows)
        hidden, logits = self._loop(on.hidden[state_rows], inputs.decode_spans(rows))
        on.hidden[state_rows] = hidden
        asked = [
            GateRow(row.spec.params.exit_threshold, row.spec.params.min_loops, row.loops_done)
            for row in rows
        ]
        return on.gate.after_loop(state_rows, logits, asked)

    def _coda(self, rows: tuple[Row, ...]) -> tuple[list[int], list[float | None]]:
        """Sample every row, after filling its exit: `loops_done` is its token's exit depth.

        The deeper planes of that position are first read by the request's next token.
        """
        on = self._started
        on.cache.fill_exits(inputs.exited_tokens(rows, self._config.total_ut_steps))
        logits = self._by_row(self._model.coda, on.hidden[self._state_rows(rows)])
        return sample(logits, [Draw(row.spec.params, row.output_idx) for row in rows])

    def _loop(self, hidden: Tensor, spans: list[Span]) -> tuple[Tensor, Tensor]:
        """One pass through the layers: hidden [N, H] and gate logits [N] of all positions."""
        if not self._one_row_per_call:
            attend = self._started.attention.prepare(spans)
            positions = inputs.positions_of(spans, self._device)
            return self._model.recurrent(hidden, positions, attend)
        parts = [
            self._model.recurrent(
                hidden[i : i + 1],
                inputs.positions_of([span], self._device),
                self._started.attention.prepare([span]),
            )
            for i, span in enumerate(inputs.split_spans(spans))
        ]
        return torch.cat([state for state, _ in parts]), torch.cat([gate for _, gate in parts])

    def _by_row(self, call: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
        """`call` on all rows, or on each alone where results must not depend on batch mates."""
        if not self._one_row_per_call:
            return call(hidden)
        return torch.cat([call(hidden[i : i + 1]) for i in range(hidden.shape[0])])

    # ---- small parts -------------------------------------------------------------------------

    @property
    def _started(self) -> _Device:
        assert self._on is not None, "the runner was not started, or was closed"
        return self._on

    def _geometry(self, config: EngineConfig) -> KVGeometry:
        model, depths = self._config, self._config.total_ut_steps
        return KVGeometry(
            layers=model.num_hidden_layers,
            kv_heads=model.num_key_value_heads,
            head_dim=model.head_dim,
            block_size=config.cache.block_size,
            depths=depths,
            planes=1 if config.cache.layout == "shared" else depths,
            dtype=self._dtype,
        )

    def _facts(self, planes: int) -> ModelFacts:
        return ModelFacts(
            name=self._name,
            depths=self._config.total_ut_steps,
            planes=planes,
            vocab_size=self._config.vocab_size,
            max_model_len=self._max_model_len,
            eos_token_ids=self._config.eos_token_ids,
        )

    def _state_rows(self, rows: Iterable[Row]) -> Tensor:
        return inputs.state_rows_of(rows, self._device)

    def _index(self, values: list[int]) -> Tensor:
        return inputs.index_tensor(values, self._device)
