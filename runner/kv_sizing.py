"""How many KV blocks a pool gets, and taking them. Arithmetic over what the machine reports."""

import os
from pathlib import Path

import torch

from rlt_fsm.config import CacheConfig
from rlt_fsm.errors import ConfigError

from .kv_cache import KVCache, KVGeometry

# Of the host's available memory: weights, activations and other programs need room as well.
HOST_FRACTION = 0.25


def take_pool(
    cache: CacheConfig,
    geometry: KVGeometry,
    *,
    max_num_seqs: int,
    max_model_len: int,
    device: torch.device,
) -> KVCache:
    """Choose a size (see `choose_num_blocks`) and take the memory.

    Raises:
        ConfigError: the device does not have it.
    """
    num_blocks = choose_num_blocks(
        cache, geometry, max_num_seqs=max_num_seqs, max_model_len=max_model_len, device=device
    )
    try:
        return KVCache(geometry, num_blocks, device)
    except RuntimeError as error:  # torch's word for out of memory, on every device
        raise ConfigError(
            f"cache.num_blocks={num_blocks}: {_gib(num_blocks * geometry.bytes_per_block)} of KV "
            f"cannot be had on {device}: lower it"
        ) from error


def choose_num_blocks(
    cache: CacheConfig,
    geometry: KVGeometry,
    *,
    max_num_seqs: int,
    max_model_len: int,
    device: torch.device,
) -> int:
    """Blocks for `max_num_seqs` requests of full context, or as many as memory allows.

    `cache.num_blocks` is taken as it is. Otherwise the cap is `cache.kv_cache_memory_bytes`; else
    on CUDA `gpu_memory_utilization` of the free memory, on a CPU a quarter of the available one.

    Raises:
        ConfigError: not even one request of `max_model_len` tokens fits.
    """
    if cache.num_blocks is not None:
        return cache.num_blocks
    per_request = geometry.blocks_for(max_model_len)
    budget_bytes, remedy = _budget(cache, device)
    affordable = budget_bytes // geometry.bytes_per_block
    if affordable < per_request:
        raise ConfigError(
            f"one request of max_model_len={max_model_len} tokens needs {per_request} KV blocks "
            f"({_gib(per_request * geometry.bytes_per_block)}), {_gib(budget_bytes)} allow "
            f"{affordable}: lower max_model_len, or {remedy}"
        )
    return min(affordable, per_request * max_num_seqs)


def _budget(cache: CacheConfig, device: torch.device) -> tuple[int, str]:
    """Bytes a pool may take, and what to change where they do not do."""
    if cache.kv_cache_memory_bytes is not None:
        return cache.kv_cache_memory_bytes, "raise cache.kv_cache_memory_bytes"
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        share = cache.gpu_memory_utilization
        return int(free_bytes * share), f"raise cache.gpu_memory_utilization={share}"
    return int(_available_host_bytes() * HOST_FRACTION), "set cache.kv_cache_memory_bytes"


def _available_host_bytes() -> int:
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
