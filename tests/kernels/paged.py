"""Random pools, tables and rows for the kernels' tests, and how results are compared."""

import os

import torch

from runner.kernels.paging import TILE_ROWS, PagedRows, Tiles

DEVICE = torch.device(os.environ.get("RLT_KERNELS_DEVICE", "cpu"))
ON_GPU = DEVICE.type == "cuda"
POISON = float("nan")
# Of norm(out - reference) / norm(reference) in fp64; tf32 would miss the bound of fp32 by far.
MOST_ERROR = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
DTYPES = list(MOST_ERROR)


def random(*shape, dtype=torch.float32, scale=1.0):
    """Fresh numbers in every run: a kernel must be right for any."""
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


def poisoned(*shape, dtype):
    return torch.full(shape, POISON, dtype=dtype, device=DEVICE)


def ints(values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


class Pool:
    """One layer's K and V inside a pool of several layers, NaN where nothing was written."""

    def __init__(self, *, slots, planes, pages, kv_heads, head_dim, block_size, dtype, layers=2):
        blocks = slots * planes * pages + 1
        shape = (blocks, layers, block_size, kv_heads, head_dim)
        self.keys, self.values = poisoned(*shape, dtype=dtype), poisoned(*shape, dtype=dtype)
        order = torch.randperm(blocks - 1)[: slots * planes * pages] + 1
        self.tables = order.view(slots, planes, pages).to(torch.int32).to(DEVICE)
        self.layer = layers - 1
        self.block_size = block_size

    def layers(self):
        return self.keys[:, self.layer], self.values[:, self.layer]

    def fill(self, slot, plane, length):
        """Random K and V at positions [0, length)."""
        for position in range(0, length, self.block_size):
            count = min(self.block_size, length - position)
            block = int(self.tables[slot, plane, position // self.block_size])
            for pool in (self.keys, self.values):
                pool[block, self.layer, :count] = random(count, *pool.shape[3:], dtype=pool.dtype)

    def rows(self, addresses):
        """(slot, plane, position) of every row."""
        return PagedRows(self.tables, *(ints(column) for column in zip(*addresses, strict=True)))


def tiles_of(runs):
    """Tiles of (first row, count) runs."""
    parts = [
        (first + done, min(TILE_ROWS, count - done))
        for first, count in runs
        for done in range(0, count, TILE_ROWS)
    ]
    first, count = zip(*parts, strict=True)
    return Tiles(ints(first), ints(count))


def assert_close(got, reference, dtype):
    """Within the dtype's bound of an fp64 reference, element by element present."""
    got, reference = got.double(), reference.double()
    assert torch.isfinite(got).all(), "an output is missing or not a number"
    error = (got - reference).norm() / reference.norm().clamp_min(1e-30)
    assert error <= MOST_ERROR[dtype], f"relative error {error:.2e} in {dtype}"
