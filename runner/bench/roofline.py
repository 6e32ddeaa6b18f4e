"""What memory bandwidth allows: bytes that a loop and a coda must read, over the copy bandwidth."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from runner.models.ouro import OuroConfig


class Roofline(NamedTuple):
    """Bytes of a model in its dtype, and bytes per second of a device-to-device copy."""

    loop_bytes: int  # the layers' weights
    coda_bytes: int  # the LM head
    kv_bytes: int  # K and V of one token at one depth
    bandwidth: float

    def loop_seconds(self, rows: float, length: float) -> float:
        """One loop of `rows` rows over `length` tokens each."""
        return (self.loop_bytes + self.kv_bytes * rows * length) / self.bandwidth

    def tokens_per_second(self, rows: float, length: float, depth: float) -> float:
        """Tokens of `rows` requests at a mean depth: rows / (depth x loop + coda)."""
        coda = self.coda_bytes / self.bandwidth
        return rows / (depth * self.loop_seconds(rows, length) + coda)


def roofline_of(config: OuroConfig, dtype: torch.dtype, bandwidth: float) -> Roofline:
    """The floors of a model."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    hidden, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    attention = hidden * config.head_dim * (2 * heads + 2 * kv_heads)
    size = dtype.itemsize
    return Roofline(
        loop_bytes=layers * (attention + 3 * hidden * inner) * size,
        coda_bytes=config.vocab_size * hidden * size,
        kv_bytes=2 * layers * kv_heads * config.head_dim * size,
        bandwidth=bandwidth,
    )


def copy_bandwidth(device: torch.device, count_bytes: int = 4 * 10**9) -> float:
    """Bytes read and written per second by a copy on the device, the best of five."""
    source = torch.randint(0, 255, (count_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [seconds(lambda: target.copy_(source), loops=5) for _ in range(6)]
    return 2 * count_bytes / min(times[1:])


def seconds(call: Callable[[], object], *, loops: int = 10) -> float:
    """Time of one call on a CUDA device, by its own events, over `loops` calls."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # the same
    start.record()
    for _ in range(loops):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / loops / 1e3
