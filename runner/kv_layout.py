"""The words of the KV pool: its shape, positions of requests, and what is copied out of it."""

from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.batch import BlockTable
from rlt_fsm.config import CacheConfig

from .models.shape import ModelShape
from .written import Owner, Written


class KVCacheError(Exception):
    """A batch names positions, depths or blocks that the pool cannot serve; nothing was changed."""


class KVGeometry(NamedTuple):
    """The shape of a pool. The loops have `depths` planes, or share one.

    Where layers run once per token, before and after the loops, one more plane, the last, is theirs
    (`boundary`). Spans name it by a depth behind the last loop's: one for the layers before, one
    for those after, since a token's K and V of the latter come later.
    """

    layers: int
    kv_heads: int
    head_dim: int
    block_size: int
    depths: int
    planes: int
    dtype: torch.dtype
    boundary: bool = False

    @property
    def loop_planes(self) -> int:
        """Planes of the loops' layers."""
        return self.planes - self.boundary

    @property
    def prelude_depth(self) -> int:
        """The depth by which spans of layers before the loops go."""
        assert self.boundary
        return self.depths

    @property
    def coda_depth(self) -> int:
        """The depth by which spans of layers after the loops go."""
        assert self.boundary
        return self.depths + 1

    @property
    def bytes_per_block(self) -> int:
        """2 (K and V) x layers x block_size x kv_heads x head_dim x bytes per element."""
        positions = self.layers * self.block_size
        return 2 * positions * self.kv_heads * self.head_dim * self.dtype.itemsize

    def blocks_for(self, tokens: int) -> int:
        """Blocks over all planes that `tokens` positions need."""
        return -(-tokens // self.block_size) * self.planes


def geometry_of(shape: ModelShape, cache: CacheConfig, dtype: torch.dtype) -> KVGeometry:
    """The pool that a model needs under a layout: a plane for each loop, or one for all; and one
    for layers outside the loops, if it has any. A block is as large for each of them.
    """
    boundary = shape.boundary_layers > 0
    loop_planes = 1 if cache.layout == "shared" else shape.depths
    return KVGeometry(
        layers=max(shape.layers, shape.boundary_layers),
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_size=cache.block_size,
        depths=shape.depths,
        planes=loop_planes + boundary,
        dtype=dtype,
        boundary=boundary,
    )


class Span(NamedTuple):
    """Consecutive positions [start, end) of one request at one depth (0-based)."""

    owner: Owner
    table: BlockTable
    depth: int
    start: int
    end: int
    state_row: int = 0  # the request's: where a backend keeps its table on the device


class Exited(NamedTuple):
    """A token that left the loop after `exit_depth` (1-based) loops."""

    owner: Owner
    table: BlockTable
    position: int
    exit_depth: int


class Slots(NamedTuple):
    """Where the rows of one model call lie: block and offset [rows] on the pool's device."""

    blocks: Tensor
    offsets: Tensor


class Pages(NamedTuple):
    """A request's pages on the host, plane by plane, and what of them was written."""

    keys: Tensor
    values: Tensor
    pages_per_plane: int
    written: Written
