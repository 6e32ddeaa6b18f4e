"""Kernels on a CUDA device against what the card's bandwidth allows, at the Ouro-1.4B shape.

python -m tests.benchmarks.bench_kernels --out FILE

Attention: all layers of a pool in one captured graph, so that no layer's pages are in a cache from
the call before. The share is (K and V bytes) / time / copy bandwidth.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from docs.generate.markdown import table
from runner.kernels.decode_attention import decode_attention
from runner.kernels.exit_fill import fill_exits
from runner.kernels.exit_routing import route_exits
from runner.kernels.kv_write import write_kv
from runner.kernels.launch_shapes import choose_splits
from runner.kernels.norms import add_norms, gather_norm, silu_mul
from runner.kernels.paging import TILE_ROWS, PagedRows, Tiles
from runner.kernels.prefill_attention import prefill_attention
from runner.kernels.sampling import sample_tokens
from runner.kernels.sampling_rows import SamplingRows

from .gpu_timing import card, copy_bandwidth, graphed, milliseconds

LAYERS, HEADS, HEAD_DIM, HIDDEN, INNER, VOCABULARY = 24, 16, 128, 2048, 5632, 49152
BLOCK_SIZE, LENGTH, PLANES = 16, 512, 4
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_POOL_BYTES = 24 * 10**9
DTYPE = torch.bfloat16


class Pool:
    """`batch` requests of LENGTH tokens at one plane each, in shuffled pages of random numbers."""

    def __init__(self, batch: int, *, planes: int = 1) -> None:
        pages = LENGTH // BLOCK_SIZE
        blocks = batch * planes * pages
        layer_bytes = 2 * blocks * BLOCK_SIZE * HEADS * HEAD_DIM * DTYPE.itemsize
        self.layers = max(1, min(LAYERS, MOST_POOL_BYTES // layer_bytes))
        shape = (blocks, self.layers, BLOCK_SIZE, HEADS, HEAD_DIM)
        self.keys = torch.empty(shape, dtype=DTYPE, device="cuda").normal_()
        self.values = torch.empty(shape, dtype=DTYPE, device="cuda").normal_()
        order = torch.randperm(blocks, device="cuda").to(torch.int32)
        self.rows = PagedRows(
            order.view(batch, planes, pages),
            torch.arange(batch, dtype=torch.int32, device="cuda"),
            torch.zeros(batch, dtype=torch.int32, device="cuda"),
            torch.full((batch,), LENGTH - 1, dtype=torch.int32, device="cuda"),
        )
        self.layer_bytes = layer_bytes


def normal(*shape: int) -> Tensor:
    """Random bf16 numbers on the device."""
    return torch.randn(shape, device="cuda").to(DTYPE)


def attention(bandwidth: float) -> Iterator[dict[str, Any]]:
    """Decode attention by batch size and splits."""
    processors = card()["multiprocessors"]
    for batch in BATCHES:
        pool = Pool(batch)
        q = normal(batch, 3 * HEADS, HEAD_DIM)[:, :HEADS]
        out = torch.empty(batch, HEADS, HEAD_DIM, dtype=DTYPE, device="cuda")
        chosen = choose_splits(batch, HEADS, processors)
        for splits in sorted({1, 2, 4, 8, 16, chosen}):
            if splits != chosen and splits * batch > 1024:
                continue

            call = partial(_all_layers, pool, q, out, splits)
            us = 1e3 * milliseconds(graphed(call)) / pool.layers
            share = pool.layer_bytes / (us * 1e-6) / bandwidth
            yield {
                "kernel": "decode attention", "rows": batch, "splits": splits,
                "chosen": splits == chosen, "us": us, "share": share,
            }  # fmt: skip
        del pool


def _all_layers(pool: Pool, q: Tensor, out: Tensor, splits: int) -> None:
    for layer in range(pool.layers):
        keys, values = pool.keys[:, layer], pool.values[:, layer]
        decode_attention(q, keys, values, pool.rows, out, splits=splits)


def small_kernels(batch: int) -> Iterator[dict[str, Any]]:
    """Everything else that one loop and a coda launch, at one batch size."""
    pool = Pool(batch, planes=PLANES)
    rows = pool.rows
    x, y, delta = (normal(batch, HIDDEN) for _ in range(3))
    weight, bias = normal(HIDDEN), normal(1)
    qkv, both = normal(batch, 3 * HEADS, HEAD_DIM), normal(batch, 2 * INNER)
    q, k, v = qkv.split(HEADS, dim=1)
    inner, logits = normal(batch, INNER), normal(batch, VOCABULARY)
    angles = torch.randn(LENGTH, HEAD_DIM // 2, device="cuda")
    rotation = (angles.cos().to(DTYPE), angles.sin().to(DTYPE))
    floats = torch.ones(batch, device="cuda")
    exits = torch.zeros(batch, dtype=torch.int8, device="cuda")
    loops = torch.full((batch,), 2, dtype=torch.int32, device="cuda")
    longs = torch.zeros(batch, dtype=torch.int64, device="cuda")
    zeros = torch.zeros(batch, dtype=torch.float64, device="cuda")
    none = torch.full((batch,), -1, dtype=torch.int32, device="cuda")

    def sampling(temperature: float, top_p: float) -> Callable[[], None]:
        asked = SamplingRows(rows.slots, zeros + temperature, zeros + top_p, none, longs, longs)
        return lambda: sample_tokens(logits, asked, longs, floats, longs)

    keys, values = pool.keys[:, 0], pool.values[:, 0]
    calls = {
        "rotary and KV write": lambda: write_kv(q, k, v, keys, values, rows, rotation),
        "gather and norm": lambda: gather_norm(x, rows.slots, x, y, weight, 1e-6),
        "residual and two norms": lambda: add_norms(x, delta, y, weight, weight, 1e-6),
        "SiLU times up": lambda: silu_mul(both, inner),
        "gate and routing": lambda: route_exits(
            y, weight, bias, rows.slots, floats, x, floats, floats, exits
        ),
        "exit fill, 2 of 4 planes": lambda: fill_exits(pool.keys, pool.values, rows, loops),
        "sampling, greedy": sampling(0.0, 1.0),
        "sampling, temperature": sampling(1.0, 1.0),
        "sampling, top-p": sampling(1.0, 0.9),
    }
    for name, call in calls.items():

        def ten(call: Any = call) -> None:
            for _ in range(10):
                call()

        yield {"kernel": name, "rows": batch, "us": 100 * milliseconds(graphed(ten))}


def matmuls(batch: int) -> Iterator[dict[str, Any]]:
    """The four projections of a layer and the LM head, each over distinct weights."""
    shapes = {
        "qkv": (3 * HIDDEN, HIDDEN), "o": (HIDDEN, HIDDEN), "gate and up": (2 * INNER, HIDDEN),
        "down": (HIDDEN, INNER), "LM head": (VOCABULARY, HIDDEN),
    }  # fmt: skip
    for name, (outputs, inputs) in shapes.items():
        count = 4 if name == "LM head" else LAYERS
        weights = [normal(outputs, inputs) for _ in range(count)]
        x = normal(batch, inputs)

        def all_layers(weights: list[Tensor] = weights, x: Tensor = x) -> None:
            for weight in weights:
                torch.nn.functional.linear(x, weight)

        us = 1e3 * milliseconds(graphed(all_layers)) / count
        yield {
            "kernel": f"matmul {name}", "rows": batch, "us": us,
            "bytes": 2 * outputs * inputs,
        }  # fmt: skip


def prefill() -> Iterator[dict[str, Any]]:
    """Causal attention of whole prompts of LENGTH tokens."""
    for batch in (1, 4, 16):
        pool = Pool(batch)
        tokens = batch * LENGTH
        q, out = normal(tokens, HEADS, HEAD_DIM), normal(tokens, HEADS, HEAD_DIM)
        steps = torch.arange(tokens, dtype=torch.int32, device="cuda")
        rows = PagedRows(pool.rows.tables, steps // LENGTH, steps * 0, steps % LENGTH)
        first = steps[::TILE_ROWS].contiguous()
        tiles = Tiles(first, torch.full_like(first, TILE_ROWS))
        keys, values = pool.keys[:, 0], pool.values[:, 0]
        us = 1e3 * milliseconds(
            graphed(partial(prefill_attention, q, keys, values, rows, tiles, out))
        )
        flops = 4 * batch * HEADS * HEAD_DIM * LENGTH * LENGTH / 2
        yield {
            "kernel": "prefill attention", "rows": tokens, "us": us,
            "tflops": flops / us / 1e6,
        }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_kernels")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.stderr.write("bench_kernels needs a CUDA device\n")
        return 2
    bandwidth = copy_bandwidth()
    figures: list[dict[str, Any]] = list(attention(bandwidth))
    for batch in (1, 32, 128, 256):
        figures += small_kernels(batch)
        figures += matmuls(batch)
    figures += prefill()
    for figure in figures:
        if "bytes" in figure:
            figure["share"] = figure["bytes"] / (figure["us"] * 1e-6) / bandwidth
    result = {**card(), "copy_bytes_per_s": bandwidth, "length": LENGTH, "figures": figures}
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    rows = [
        [
            figure["kernel"], figure["rows"], figure.get("splits", ""), f"{figure['us']:.1f} us",
            f"{figure['share']:.0%}" if "share" in figure else "",
        ]
        for figure in figures
    ]  # fmt: skip
    head = ["kernel", "rows", "splits", "time", "of copy bandwidth"]
    sys.stdout.write(f"{result['card']}, copy {bandwidth / 1e12:.2f} TB/s\n\n")
    sys.stdout.write(table(head, rows, numbers=range(1, 5)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
