"""Timing on a CUDA device: captured launches, medians, and the copy bandwidth as the ceiling."""

from collections.abc import Callable
from typing import Any

import torch

from .bench_runs import median


def graphed(call: Callable[[], object]) -> Callable[[], None]:
    """`call` as a captured graph: launch gaps of the host do not count."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def milliseconds(call: Callable[[], object], *, repeats: int = 5, loops: int = 10) -> float:
    """Median time of one call, from device events around `loops` calls."""
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(loops):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / loops)
    return median(times)


def copy_bandwidth() -> float:
    """Bytes read and written per second by a device-to-device copy of 4 GB."""
    source = torch.randint(0, 255, (4 * 10**9,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) / 1e3)


def card() -> dict[str, Any]:
    """The device in words."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
    }
