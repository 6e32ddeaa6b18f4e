"""What a runner's memory goes to: worked out before any of it is taken, and printable.

Arithmetic on sizes alone, so that an engine made again in the same process gets the same pool.
"""

import msgspec
import torch

from rlt_fsm.config import EngineConfig

from .models.shape import ModelShape

RESERVE_BYTES = 256 * 2**20  # the libraries' workspaces, and what the allocator cannot join
GRAPH_BYTES = 3 * 2**20  # of one captured step beside its tensors: nodes and their arguments
_TORCH_GATHERS = 3 * 256 * 2**20  # what the torch backend holds of gathered pages at a time


class Working(msgspec.Struct, frozen=True):
    """Bytes that a runner needs beside weights and KV."""

    activations: int
    graphs: int
    reserve: int

    @property
    def total(self) -> int:
        """All three."""
        return self.activations + self.graphs + self.reserve


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one device goes, in bytes; `str(plan)` is a table.

    `source`: what decided the number of blocks. `in_use`: weights, and whatever else was there
    before.
    """

    source: str
    device: str
    total: int
    in_use: int
    working: Working
    kv_pool: int
    num_blocks: int
    block: int

    def __str__(self) -> str:
        rows = (
            ("in use (weights and others)", self.in_use),
            ("activations", self.working.activations),
            ("graphs", self.working.graphs),
            ("reserve", self.working.reserve),
            (f"KV pool ({self.num_blocks:,} blocks, by {self.source})", self.kv_pool),
            ("left", self.total - self.in_use - self.working.total - self.kv_pool),
        )
        lines = [f"{name:<48} {count / 2**30:>8.2f} GiB" for name, count in rows]
        return "\n".join([f"memory of {self.device}: {self.total / 2**30:.2f} GiB", *lines])


def working_memory(
    model: ModelShape, dtype: torch.dtype, config: EngineConfig, *, backend: str, graphs: int
) -> Working:
    """What the largest batch needs, and `graphs` captured steps.

    A layer holds two residuals, a delta, q, k, v, attention's output, and gate, up and their
    product of every row at once; a coda holds the logits of every request.
    """
    scheduler = config.scheduler
    rows = max(scheduler.max_num_batched_tokens, scheduler.max_num_seqs)
    heads = model.heads + 2 * model.kv_heads
    hidden, inner = model.hidden_size, model.intermediate_size
    numbers = 6 * hidden + 2 * model.state_size + 2 * heads * model.head_dim + 3 * inner
    per_row = numbers * dtype.itemsize + 2 * hidden * 4
    # The torch sampler works in fp64 with a few copies; the kernel on the logits as they are.
    per_logit = dtype.itemsize if backend == "triton" else dtype.itemsize + 4 + 4 * 8
    logits = scheduler.max_num_seqs * model.vocab_size * per_logit
    activations = rows * per_row + logits
    if backend != "triton":
        activations += _TORCH_GATHERS
    # Graphs keep what their largest step holds, of decode rows and of prompts.
    decode = scheduler.max_num_seqs * (per_row + model.vocab_size * dtype.itemsize)
    captured = graphs * GRAPH_BYTES + decode + rows * per_row if graphs else 0
    return Working(activations, captured, RESERVE_BYTES)
