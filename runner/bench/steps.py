"""Single decode steps against their floors: a captured loop of B rows over L tokens, and a coda."""

from typing import NamedTuple

import numpy as np
import torch

from runner.attention import create_backend
from runner.device_executor import DeviceExecutor
from runner.device_start import start_device_executor
from runner.execution import Options
from runner.kernels.backend import TritonAttention
from runner.kv_cache import KVCache, KVGeometry
from runner.loading import LoadedModel
from runner.resident import ResidentState
from runner.staging import Stage

from .roofline import Roofline, seconds

_BLOCK_SIZE = 16


class StepTimes(NamedTuple):
    """Seconds of one captured loop and one captured greedy coda, and the loop's floor."""

    rows: int
    length: int
    loop: float
    floor: float
    coda: float


def time_steps(
    loaded: LoadedModel, rows: int, length: int, roofline: Roofline, *, batch_invariant: bool
) -> StepTimes:
    """Medians of five: `rows` requests of `length` tokens, their pages in random order."""
    with torch.inference_mode():
        executor = _executor(loaded, rows, length, batch_invariant=batch_invariant)
        count = executor.buckets()[-1]
        stage = Stage(count, loaded.device)
        columns = stage.columns
        stage.put_slots(list(range(rows)), count)
        columns.planes[:] = 0
        columns.positions[:] = length - 1
        columns.thresholds[:] = 0.5
        executor.inputs.send(stage.numbers)
        loop = _median(executor, "recurrent", count)
        columns.loops[:] = loaded.config.shape.depths
        columns.temperatures[:] = 0.0
        executor.inputs.send(stage.numbers)
        coda = _median(executor, "coda", count)
    floor = roofline.loop_seconds(rows, length)
    del executor
    torch.cuda.empty_cache()
    return StepTimes(rows, length, loop, floor, coda)


def _median(executor: DeviceExecutor, name: str, count: int) -> float:
    step = executor.steps()[name]
    for _ in range(2):
        step(count)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(count)
    times = sorted(seconds(graph.replay) for _ in range(6))
    return times[2]


def _executor(
    loaded: LoadedModel, rows: int, length: int, *, batch_invariant: bool
) -> DeviceExecutor:
    """One plane of KV is enough for one loop; all requests are at depth 0."""
    model = loaded.as_ouro()
    config, weight = model.config, model.lm_head.weight
    geometry = KVGeometry(
        layers=config.num_hidden_layers,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        block_size=_BLOCK_SIZE,
        depths=config.total_ut_steps,
        planes=1,
        dtype=weight.dtype,
    )
    pages = -(-length // _BLOCK_SIZE)
    cache = KVCache(geometry, rows * pages, weight.device)
    for pool in (cache.keys, cache.values):
        pool.normal_()
    attention = create_backend("triton", cache, batch_invariant=batch_invariant)
    assert isinstance(attention, TritonAttention)
    resident = ResidentState(rows, config.hidden_size, dtype=weight.dtype, device=weight.device)
    resident.hidden.normal_()
    options = Options(one_row_per_call=batch_invariant, prefix_caching=False, keeps_tokens=False)
    executor = start_device_executor(
        model,
        cache,
        attention,
        resident,
        options,
        max_model_len=length,
        max_tokens=rows,
    )
    order = np.random.default_rng(0).permutation(rows * pages).reshape(rows, pages)
    for row in range(rows):
        attention.tables.put(row, (tuple(int(block) for block in order[row]),))
    return executor
