"""How many KV blocks a pool gets, and taking them. Arithmetic over what the machine reports."""

import os
from pathlib import Path

import torch

from rlt_fsm.config import CacheConfig, EngineConfig
from rlt_fsm.errors import ConfigError

from .cuda_graphs import captured_steps
from .kv_cache import KVCache, KVGeometry
from .memory_plan import MemoryPlan, working_memory
from .models.shape import ModelShape

# Of the host's available memory: weights, activations and other programs need room as well.
HOST_FRACTION = 0.25


def take_pool(
    cache: CacheConfig,
    geometry: KVGeometry,
    *,
    max_num_seqs: int,
    max_model_len: int,
    device: torch.device,
    working_bytes: int = 0,
) -> KVCache:
    """Choose a size (see `choose_num_blocks`) and take the memory.

    Raises:
        ConfigError: the device does not have it.
    """
    num_blocks = choose_num_blocks(
        cache,
        geometry,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        device=device,
        working_bytes=working_bytes,
    )
    try:
        return KVCache(geometry, num_blocks, device)
    except RuntimeError as error:  # torch's word for out of memory, on every device
        raise ConfigError(
            f"cache.num_blocks={num_blocks}: {_gib(num_blocks * geometry.bytes_per_block)} of KV "
            f"cannot be had on {device}: lower it"
        ) from error


def planned_pool(
    config: EngineConfig,
    model: ModelShape,
    geometry: KVGeometry,
    *,
    backend: str,
    max_model_len: int,
    device: torch.device,
) -> tuple[KVCache, MemoryPlan]:
    """The pool of a runner, and the plan of its device's memory.

    Raises:
        ConfigError: the device does not have it.
    """
    scheduler, cache_config = config.scheduler, config.cache
    graphs = captured_steps(config)
    working = working_memory(model, geometry.dtype, config, backend=backend, graphs=graphs)
    is_cuda = device.type == "cuda"
    in_use, total = device_memory(device) if is_cuda else (0, available_host_bytes())
    cache = take_pool(
        cache_config,
        geometry,
        max_num_seqs=scheduler.max_num_seqs,
        max_model_len=max_model_len,
        device=device,
        working_bytes=working.total,
    )
    plan = MemoryPlan(
        source=_source(cache_config, device),
        device=str(device),
        total=total,
        in_use=in_use,
        working=working,
        kv_pool=cache.num_blocks * geometry.bytes_per_block,
        num_blocks=cache.num_blocks,
        block=geometry.bytes_per_block,
    )
    return cache, plan


def _source(cache: CacheConfig, device: torch.device) -> str:
    if cache.num_blocks is not None:
        return "cache.num_blocks"
    if cache.kv_cache_memory_bytes is not None:
        return "cache.kv_cache_memory_bytes"
    return "free memory" if device.type == "cuda" else "a share of the host's memory"


def choose_num_blocks(
    cache: CacheConfig,
    geometry: KVGeometry,
    *,
    max_num_seqs: int,
    max_model_len: int,
    device: torch.device,
    working_bytes: int = 0,
) -> int:
    """Blocks for `max_num_seqs` requests of full context, or as many as memory allows.

    `cache.num_blocks` is taken as it is. Otherwise the cap is `cache.kv_cache_memory_bytes`; else
    on CUDA `gpu_memory_utilization` of the device less what is in use and `working_bytes`, on a
    CPU a quarter of the available memory.

    Raises:
        ConfigError: not even one request of `max_model_len` tokens fits.
    """
    if cache.num_blocks is not None:
        return cache.num_blocks
    per_request = geometry.blocks_for(max_model_len)
    budget_bytes, remedy = _budget(cache, device, working_bytes)
    affordable = budget_bytes // geometry.bytes_per_block
    if affordable < per_request:
        raise ConfigError(
            f"one request of max_model_len={max_model_len} tokens needs {per_request} KV blocks "
            f"({_gib(per_request * geometry.bytes_per_block)}), {_gib(budget_bytes)} allow "
            f"{affordable}: lower max_model_len, or {remedy}"
        )
    return min(affordable, per_request * max_num_seqs)


def device_memory(device: torch.device) -> tuple[int, int]:
    """Bytes of a CUDA device in use, by whomever, and in all; torch keeps nothing unused back."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return total_bytes - free_bytes, total_bytes


def _budget(cache: CacheConfig, device: torch.device, working_bytes: int) -> tuple[int, str]:
    """Bytes a pool may take, and what to change where they do not do."""
    if cache.kv_cache_memory_bytes is not None:
        return cache.kv_cache_memory_bytes, "raise cache.kv_cache_memory_bytes"
    if device.type == "cuda":
        in_use, total = device_memory(device)
        share = cache.gpu_memory_utilization
        budget = max(0, int(total * share) - in_use - working_bytes)
        return budget, f"raise cache.gpu_memory_utilization={share}"
    return int(available_host_bytes() * HOST_FRACTION), "set cache.kv_cache_memory_bytes"


def available_host_bytes() -> int:
    """Bytes of the host's memory that a program can have without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    # Elsewhere only the total is known: count half of it as available.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 2**30:.3g} GiB"
