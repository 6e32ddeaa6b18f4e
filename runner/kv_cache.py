"""The paged, depth-aware KV pool of one device, and where a batch's positions lie in it.

A block holds `block_size` token positions of all layers for one plane. Who owns a block is decided
elsewhere (`rlt_fsm`); this file checks what it is given before it changes anything. How attention
is computed, and how large a pool should be, does not live here.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlt_fsm.batch import BlockTable

from .kv_layout import Exited, KVCacheError, KVGeometry, Pages, Slots, Span
from .written import Owner, WrittenRecords

__all__ = ["Exited", "KVCache", "KVCacheError", "KVGeometry", "Pages", "Slots", "Span"]


Index = NDArray[np.int64]


class KVCache:
    """K and V, each [num_blocks, layers, block_size, kv_heads, head_dim], zero at the start."""

    def __init__(self, geometry: KVGeometry, num_blocks: int, device: torch.device) -> None:
        assert geometry.loop_planes in {1, geometry.depths}, geometry
        self.geometry = geometry
        self.num_blocks = num_blocks
        self.device = device
        shape = (
            num_blocks,
            geometry.layers,
            geometry.block_size,
            geometry.kv_heads,
            geometry.head_dim,
        )
        self.keys = torch.zeros(shape, dtype=geometry.dtype, device=device)
        self.values = torch.zeros(shape, dtype=geometry.dtype, device=device)
        self._written = WrittenRecords(geometry.loop_planes + 2 * geometry.boundary)
        self._single = [range(plane, plane + 1) for plane in range(geometry.planes)]
        # By exit depth: the planes that a token filled up to there leaves to be filled.
        self._deeper = [range(loops, geometry.loop_planes) for loops in range(geometry.depths + 1)]

    def plane(self, depth: int) -> int:
        """The plane that holds `depth`."""
        if depth >= self.geometry.depths:
            return self.geometry.planes - 1
        return depth if self.geometry.loop_planes > 1 else 0

    def frontier(self, owner: Owner, depth: int) -> int:
        """How many positions from 0 on are written at `depth`."""
        return self._written.frontier(owner, self._record(depth))

    def _record(self, depth: int) -> int:
        """Where `depth` counts what is written: by plane, and twice for the boundary's."""
        if depth >= self.geometry.depths:
            return self.geometry.loop_planes + depth - self.geometry.depths
        return self.plane(depth)

    # ---- writing -----------------------------------------------------------------------------

    def prepare(self, spans: Sequence[Span]) -> Slots:
        """Addresses of all positions of `spans`, in order; they count as written from here on.

        Raises: as `enqueue`.
        """
        blocks, offsets = self.enqueue(spans)
        return Slots(self._tensor(blocks), self._tensor(offsets))

    def enqueue(self, spans: Sequence[Span]) -> tuple[Index, Index]:
        """`prepare` with block and offset of every position on the host.

        Raises:
            KVCacheError: a depth, position or block out of range, planes of unequal length, two
                rows that write one address, or history before a span that was never written.
        """
        for span in spans:
            self._check_span(span)
        self._check_history(spans)
        addresses = self._addresses(spans)
        for span in spans:
            self._written.extend(span.owner, self._record(span.depth), span.start, span.end)
        return addresses

    def write(self, layer: int, slots: Slots, keys: Tensor, values: Tensor) -> None:
        """Store K and V [rows, kv_heads, head_dim] of one layer at `slots`."""
        rows = slots.blocks.shape[0]
        for name, tensor in (("keys", keys), ("values", values)):
            if tensor.shape[0] != rows:
                raise KVCacheError(f"{name} of {tensor.shape[0]} rows for {rows} addresses")
        index = (slots.blocks, slots.offsets)
        self.keys[:, layer].index_put_(index, keys)
        self.values[:, layer].index_put_(index, values)

    def fill_exit(self, owner: Owner, table: BlockTable, position: int, exit_depth: int) -> None:
        """`fill_exits` for one token."""
        self.fill_exits([Exited(owner, table, position, exit_depth)])

    def fill_exits(self, tokens: Sequence[Exited]) -> None:
        """Copy each token's K and V of every layer from its exit plane to all deeper planes.

        From then on the token presents plane min(depth, exit) to every query, and the copies are
        independent of their source. With a shared plane there is nothing to copy.

        Raises:
            KVCacheError: as `count_exits`, or what `check_table` refuses; nothing was changed.
        """
        for token in tokens:
            self.check_table(token.owner, token.table)
        self.count_exits(tokens)
        sources: list[int] = []
        targets: list[int] = []
        offsets: list[int] = []
        for token in tokens:
            page, offset = divmod(token.position, self.geometry.block_size)
            for plane in range(token.exit_depth, self.geometry.loop_planes):
                sources.append(token.table[token.exit_depth - 1][page])
                targets.append(token.table[plane][page])
                offsets.append(offset)
        if targets:
            source, target, at = map(self._tensor, (sources, targets, offsets))
            for pool in (self.keys, self.values):
                pool[target, :, at] = pool[source, :, at]

    def count_exits(self, tokens: Sequence[Exited]) -> None:
        """Check tokens that leave and count their deeper planes as written; a kernel copies.

        Their tables were checked before.

        Raises:
            KVCacheError: an exit depth out of range, or a token that never ran as deep.
        """
        for token in tokens:
            self._check_exit(token)
        written, deeper = self._written, self._deeper
        for owner, _, position, exit_depth in tokens:
            written.extend_by_one(owner, deeper[exit_depth], position)

    def advance(
        self,
        owners: Sequence[Owner],
        tables: Sequence[BlockTable],
        planes: Sequence[int],
        positions: Sequence[int],
    ) -> None:
        """Count one position of each owner as written at its plane; a kernel writes.

        The short way of `enqueue` for decode rows of different requests whose tables were checked.

        Raises:
            KVCacheError: no page, or history that was never written; nothing was counted.
        """
        size, written = self.geometry.block_size, self._written
        for owner, table, plane, position in zip(owners, tables, planes, positions, strict=True):
            if position >= len(table[0]) * size:
                raise KVCacheError(f"{_name(owner)}: no page for position {position}")
            if position > (frontier := written.frontier(owner, plane)):
                raise self._no_history(owner, plane, position, frontier)
        for owner, plane, position in zip(owners, planes, positions, strict=True):
            written.extend_by_one(owner, self._single[plane], position)

    # ---- a request as a whole ----------------------------------------------------------------

    def begin(self, owner: Owner, cached: int) -> None:
        """A request's first rows arrive; [0, cached) lie in pages that others wrote."""
        self._written.begin(owner, cached)

    def knows(self, owner: Owner) -> bool:
        """Whether the request has begun, and was neither forgotten nor offloaded."""
        return owner in self._written

    def forget(self, owner: Owner) -> None:
        """Nothing of `owner` counts as written any more."""
        self._written.take(owner)

    def offload(self, owner: Owner, table: BlockTable) -> Pages:
        """Copy a request's pages to the host; here nothing of it counts as written any more."""
        self._check_table(owner, table)
        index = self._tensor([block for plane in table for block in plane])
        keys, values = (pool[index].to("cpu") for pool in (self.keys, self.values))
        return Pages(keys, values, len(table[0]), self._written.take(owner))

    def reload(self, owner: Owner, table: BlockTable, pages: Pages) -> None:
        """Bring offloaded pages into other blocks, as many per plane as there were."""
        self._check_table(owner, table)
        if len(table[0]) != pages.pages_per_plane:
            raise KVCacheError(
                f"{_name(owner)}: {pages.pages_per_plane} pages per plane were offloaded, "
                f"{len(table[0])} blocks are given"
            )
        index = self._tensor([block for plane in table for block in plane])
        self.keys[index] = pages.keys.to(self.device)
        self.values[index] = pages.values.to(self.device)
        self._written.put(owner, pages.written)

    # ---- checks ------------------------------------------------------------------------------

    def check_table(self, owner: Owner, table: BlockTable) -> None:
        """A request's table as a whole.

        Raises:
            KVCacheError: not as many planes as the pool has, of unequal length, or no such block.
        """
        self._check_table(owner, table)
        for blocks in table:
            self._check_blocks(owner, blocks)

    def _check_table(self, owner: Owner, table: BlockTable) -> None:
        planes = self.geometry.planes
        if len(table) != planes:
            raise KVCacheError(f"{_name(owner)}: {len(table)} planes in the table, not {planes}")
        lengths = [len(blocks) for blocks in table]
        if min(lengths) != max(lengths):
            raise KVCacheError(f"{_name(owner)}: planes of unequal length {lengths}")

    def _check_span(self, span: Span) -> None:
        self._check_table(span.owner, span.table)
        depths = self.geometry.depths + 2 * self.geometry.boundary
        if not 0 <= span.depth < depths:
            raise KVCacheError(f"{_name(span.owner)}: depth {span.depth} outside [0, {depths})")
        capacity = len(span.table[0]) * self.geometry.block_size
        if not 0 <= span.start < span.end <= capacity:
            raise KVCacheError(
                f"{_name(span.owner)}: positions [{span.start}, {span.end}) outside "
                f"capacity {capacity}"
            )
        self._check_blocks(span.owner, span.table[self.plane(span.depth)])

    def _check_blocks(self, owner: Owner, blocks: Sequence[int]) -> None:
        if not 0 <= min(blocks) <= max(blocks) < self.num_blocks:
            raise KVCacheError(f"{_name(owner)}: blocks {blocks} outside [0, {self.num_blocks})")

    def _check_history(self, spans: Sequence[Span]) -> None:
        ahead: dict[tuple[Owner, int], int] = {}  # what this very call writes before it reads
        for span in spans:
            key = (span.owner, self._record(span.depth))
            written = ahead.get(key, self.frontier(span.owner, span.depth))
            if span.start > written:
                raise self._no_history(span.owner, span.depth, span.start, written)
            ahead[key] = self._written.frontier_after(*key, written, span.end)

    @staticmethod
    def _no_history(owner: Owner, depth: int, position: int, written: int) -> KVCacheError:
        return KVCacheError(
            f"{_name(owner)}: position {position} at depth {depth} would read "
            f"uninitialised history: only {written} positions are written"
        )

    def _check_exit(self, token: Exited) -> None:
        owner, table, position, exit_depth = token
        depths = self.geometry.depths
        if not 1 <= exit_depth <= depths:
            raise KVCacheError(f"{_name(owner)}: exit depth {exit_depth} outside [1, {depths}]")
        if not self._written.has(owner, self.plane(exit_depth - 1), position):
            raise KVCacheError(
                f"{_name(owner)}: position {position} never ran at depth {exit_depth - 1}"
            )
        if position >= len(table[0]) * self.geometry.block_size:
            raise KVCacheError(f"{_name(owner)}: no page for position {position}")

    # ---- small parts -------------------------------------------------------------------------

    def _addresses(self, spans: Sequence[Span]) -> tuple[Index, Index]:
        size = self.geometry.block_size
        blocks, offsets = [], []
        for span in spans:
            positions = np.arange(span.start, span.end)
            blocks.append(np.array(span.table[self.plane(span.depth)])[positions // size])
            offsets.append(positions % size)
        block, offset = np.concatenate(blocks), np.concatenate(offsets)
        if np.unique(block * size + offset).size != block.size:
            raise KVCacheError("two rows of one call write the same address")
        return block, offset

    def _tensor(self, values: Sequence[int] | Index) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.device)


def _name(owner: Owner) -> str:
    return f"{owner[0]}#{owner[1]}"
