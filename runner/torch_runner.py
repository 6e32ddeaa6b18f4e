"""TorchRunner: the Runner protocol on one device.

It takes memory, keeps what the engine never sees (KV pool, state rows, host copies) and hands
batches to the executor. It decides nothing: rows come with their depths, tables and rules.
"""

from collections import deque
from pathlib import Path
from typing import NamedTuple

import torch
from msgspec.structs import replace

from rlt_fsm.arguments import function_or_none
from rlt_fsm.batch import Batch, BatchResult, BlockTable, ModelFacts, RequestSpec
from rlt_fsm.config import AttentionBackend as BackendName
from rlt_fsm.config import EngineConfig, SchedulerConfig
from rlt_fsm.errors import ConfigError
from rlt_fsm.oplog import logger

from .attention import AttentionBackend, create_backend, resolve_backend
from .device_executor import DeviceExecutor
from .device_start import start_device_executor
from .ends import Ends, LayeredEnds, PlainEnds
from .execution import Executor, Options
from .kernels.backend import TritonAttention
from .kv_cache import KVCache, Pages
from .kv_layout import geometry_of
from .kv_sizing import planned_pool
from .loading import LoadedModel, load_model, resolve_context
from .memory_plan import MemoryPlan
from .models.huginn import HuginnModel
from .on_device import abandon, chosen, computing, is_lost
from .pending import Pending
from .progress import Progress, silent
from .resident import ResidentState
from .written import Owner


class _Device(NamedTuple):
    """What `start` takes memory for, and what runs on it."""

    cache: KVCache
    resident: ResidentState
    executor: Executor


class TorchRunner:
    """Runs a model (see `load_model`), or one already loaded, on a CPU or a CUDA device.

    `device` and `dtype` are for a model that is read here; `auto` is CUDA where there is one, in
    bfloat16, else the CPU, in float32. A loaded model stays as it is. `max_model_len` caps the
    context. `progress` hears of graphs as they are captured; `memory_plan` is there once started.

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
        progress: Progress = silent,
    ) -> None:
        function_or_none("progress", progress)
        loaded = model if isinstance(model, LoadedModel) else load_model(model, device, dtype)
        self._name, self._model = loaded.name, loaded.model
        self._shape = loaded.config.shape
        self._device, self._dtype = loaded.device, loaded.dtype
        self._max_model_len = resolve_context(max_model_len, self._shape.context)
        self._progress = progress
        self.memory_plan: MemoryPlan | None = None
        self.fallback: str | None = None
        self._on: _Device | None = None
        self._offloaded: dict[Owner, Pages] = {}
        self._pending: deque[Pending] = deque()

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """Take the KV pool and the state rows; see `rlt_fsm.batch.Runner`.

        Raises:
            ConfigError: something that does not run here, or a pool that does not fit.
        """
        self.close()
        self.fallback = None
        with chosen(self._device):
            return self._start(config)

    def _start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        execution = config.execution
        backend = self._backend(config)
        if execution.cuda_graphs and backend != "triton":
            raise ConfigError(
                "execution.cuda_graphs=True needs a CUDA device and attention_backend 'triton': "
                "set it to False"
            )
        geometry = geometry_of(self._shape, config.cache, self._dtype)
        state_rows = config.scheduler.max_num_seqs
        cache, self.memory_plan = planned_pool(
            config,
            self._shape,
            geometry,
            backend=backend,
            max_model_len=self._max_model_len,
            device=self._device,
        )
        attention = create_backend(backend, cache, batch_invariant=execution.batch_invariant)
        mode = config.exit.mode or ("ouro_delayed" if execution.async_scheduling else "ouro")
        resident = ResidentState(
            state_rows,
            self._shape.state_size,
            dtype=self._dtype,
            device=self._device,
        )
        options = Options(
            one_row_per_call=execution.batch_invariant,
            prefix_caching=config.cache.enable_prefix_caching,
            keeps_tokens=execution.async_scheduling,
            max_in_flight=execution.max_in_flight if execution.async_scheduling else 1,
        )
        executor = self._executor(cache, attention, resident, options, config.scheduler)
        has_graphs = execution.cuda_graphs and self._capture(executor)
        self._on = _Device(cache, resident, executor)
        resolved = replace(
            config,
            cache=replace(config.cache, num_blocks=cache.num_blocks, kv_cache_memory_bytes=None),
            execution=replace(execution, attention_backend=backend, cuda_graphs=has_graphs),
            exit=replace(config.exit, mode=mode),
        )
        return self._facts(geometry.planes), resolved

    # ---- batches -----------------------------------------------------------------------------

    def submit(self, batch: Batch) -> None:
        """Begin a batch behind those submitted before; on CUDA it is launched when this returns, on
        a CPU computed.
        """
        with computing(self._device):
            self._pending.append(self._started.executor.start(batch))

    def collect(self) -> list[BatchResult]:
        """Results in the order of submission; waits for the oldest."""
        assert self._pending, "collect without a submitted batch would wait for ever"
        with computing(self._device):
            return [self._oldest(), *self._there()]

    def poll(self) -> list[BatchResult]:
        """The results that are there, in the order of submission."""
        with computing(self._device):
            return self._there()

    def _there(self) -> list[BatchResult]:
        results = []
        while self._pending and self._pending[0].is_done():
            results.append(self._oldest())
        return results

    def _oldest(self) -> BatchResult:
        """The result of the oldest batch; an `error` where the device failed it alone."""
        pending = self._pending.popleft()
        try:
            return pending.result()
        except RuntimeError as error:
            if is_lost(self._device):
                raise
            return BatchResult(pending.ticket, error=f"device-error kind={type(error).__name__}")

    # ---- requests ----------------------------------------------------------------------------

    def park(self, spec: RequestSpec, state_row: int) -> None:
        """Keep the row's hidden states and gate on the host; the KV stays where it is."""
        with computing(self._device):
            self._started.resident.park(_owner(spec), state_row)

    def unpark(self, spec: RequestSpec, state_row: int) -> None:
        """Bring a parked request's states into a (possibly different) state row."""
        with computing(self._device):
            self._started.resident.unpark(_owner(spec), state_row)

    def offload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Copy the request's KV to the host; its blocks may be reused when this returns."""
        with computing(self._device):
            pages = self._started.cache.offload(_owner(spec), block_table)
        self._offloaded[_owner(spec)] = pages

    def reload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Bring an offloaded request's KV into fresh blocks (as many pages as were offloaded)."""
        with computing(self._device):
            self._started.cache.reload(_owner(spec), block_table, self._offloaded[_owner(spec)])
        del self._offloaded[_owner(spec)]

    def release(self, spec: RequestSpec) -> None:
        """Forget everything kept for a request: what it wrote, parked states, offloaded KV."""
        owner, on = _owner(spec), self._started
        on.cache.forget(owner)
        on.resident.forget(owner)
        self._offloaded.pop(owner, None)

    def close(self) -> None:
        """Give back all but the weights; `start` may take it again. May be called twice."""
        if self._on is not None and is_lost(self._device):
            abandon(self._on, *self._pending)
        self._on = None
        self._offloaded.clear()
        self._pending.clear()

    # ---- small parts -------------------------------------------------------------------------

    @property
    def _started(self) -> _Device:
        assert self._on is not None, "the runner was not started, or was closed"
        return self._on

    def _backend(self, config: EngineConfig) -> BackendName:
        """What computes attention; ConfigError for what this architecture cannot do."""
        name = config.execution.attention_backend
        if self._shape.is_seeded and config.cache.enable_prefix_caching:
            raise ConfigError(
                f"cache.enable_prefix_caching=True does not go with {self._name}, whose KV depends "
                "on each request's seed: set it to False"
            )
        if not self._shape.boundary_layers:
            return resolve_backend(name, self._device)
        if name == "triton":
            raise ConfigError(
                f"execution.attention_backend='triton' does not run {self._name} in this version, "
                "which has layers outside its loops: set it to 'auto' or 'torch'"
            )
        return "torch"

    def _executor(
        self,
        cache: KVCache,
        attention: AttentionBackend,
        resident: ResidentState,
        options: Options,
        limits: SchedulerConfig,
    ) -> Executor:
        model, alone = self._model, options.one_row_per_call
        ends: Ends
        if isinstance(model, HuginnModel):
            ends = LayeredEnds(model, cache, attention, one_row_per_call=alone)
        elif isinstance(attention, TritonAttention):
            return start_device_executor(
                model,
                cache,
                attention,
                resident,
                options,
                max_model_len=self._max_model_len,
                max_tokens=limits.max_num_batched_tokens,
            )
        else:
            ends = PlainEnds(model, one_row_per_call=alone)
        return Executor(model, ends, cache, attention, resident, options)

    def _capture(self, executor: Executor) -> bool:
        """Whether steps are captured; where memory is short they are launched singly."""
        assert isinstance(executor, DeviceExecutor), "only the kernels' executor has graphs"
        try:
            executor.capture(self._progress)
        except torch.OutOfMemoryError as error:
            self.fallback = "no-cuda-graphs cause=out-of-memory"
            logger().warning("no cuda graphs", reason="out-of-memory", error=str(error))
            torch.cuda.empty_cache()
            return False
        return True

    def _facts(self, planes: int) -> ModelFacts:
        return ModelFacts(
            name=self._name,
            depths=self._shape.depths,
            planes=planes,
            vocab_size=self._shape.vocab_size,
            max_model_len=self._max_model_len,
            eos_token_ids=self._shape.eos_token_ids,
        )


def _owner(spec: RequestSpec) -> Owner:
    return spec.request_id, spec.generation
