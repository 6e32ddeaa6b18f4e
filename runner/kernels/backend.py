"""The attention backend that launches the kernels: spans in, the rows and tiles of a call out."""

from collections.abc import Sequence
from types import ModuleType
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runner.kv_cache import KVCache, Span

from .launch_shapes import choose_splits
from .paging import TILE_ROWS, PagedRows, Tiles
from .tables import SlotTables, upload

# Programs per row where results must not depend on the batch: enough for small batches.
INVARIANT_SPLITS: Final = 8


class TritonAttention:
    """Kernels over one pool; a span's slot is its request's state row.

    Spans of one position run as decode rows, longer ones as prompt tiles. With `batch_invariant`
    every position is a decode row and rows are always split alike, so that a position's result
    depends on nothing but its own history. `kernels` is the module `compiled`, or `twins`.
    """

    def __init__(
        self, cache: KVCache, kernels: ModuleType, *, batch_invariant: bool = False
    ) -> None:
        self.kernels = kernels
        self.tables = SlotTables(1, cache.geometry.planes, 1, cache.device)
        self._cache = cache
        self._batch_invariant = batch_invariant
        self._processors = 1
        if cache.device.type == "cuda":
            properties = torch.cuda.get_device_properties(cache.device)
            self._processors = properties.multi_processor_count

    def prepare(self, spans: Sequence[Span]) -> "TritonCall":
        """See `runner.attention.AttentionBackend`."""
        return self.plan(spans)

    def plan(self, spans: Sequence[Span], padding: int = 0) -> "TritonCall":
        """Count `spans` as written and lay out their rows, with `padding` rows behind them."""
        rows = self._rows(self.columns(spans), padding)
        decodes, tiles = split_rows(spans, every_row_decodes=self._batch_invariant)
        count = sum(end - start for start, end in decodes)
        return TritonCall(
            self.kernels, self._cache, rows, decodes, self._tiles(tiles), self.splits(count)
        )

    def splits(self, rows: int) -> int:
        """Programs per row and KV head of a decode launch."""
        if self._batch_invariant:
            return INVARIANT_SPLITS
        return choose_splits(rows, self._cache.geometry.kv_heads, self._processors)

    def columns(self, spans: Sequence[Span]) -> NDArray[np.int32]:
        """Count `spans` as written, with their tables in place: slot, plane and position [3, rows]
        of each of their rows.
        """
        self._cache.enqueue(spans)
        owners = {span.state_row: span.owner for span in spans}
        assert all(owners[span.state_row] == span.owner for span in spans), "one owner per row"
        for span in spans:
            self.tables.put(span.state_row, span.table)
        counts = [span.end - span.start for span in spans]
        columns = np.empty((3, sum(counts)), dtype=np.int32)
        columns[0] = np.repeat([span.state_row for span in spans], counts)
        columns[1] = np.repeat([self._cache.plane(span.depth) for span in spans], counts)
        columns[2] = np.concatenate([np.arange(span.start, span.end) for span in spans])
        return columns

    def _rows(self, own: NDArray[np.int32], padding: int) -> PagedRows:
        columns = np.zeros((3, own.shape[1] + padding), dtype=np.int32)
        columns[0] = -1
        columns[:, : own.shape[1]] = own
        slots, planes, positions = upload(columns, self._cache.device)
        return PagedRows(self.tables.tensor, slots, planes, positions)

    def _tiles(self, tiles: Sequence[tuple[int, int]]) -> Tiles | None:
        if not tiles:
            return None
        firsts, counts = upload(np.array(tiles, dtype=np.int32).T.copy(), self._cache.device)
        return Tiles(firsts, counts)


class TritonCall:
    """The attention of one model call, layer by layer."""

    def __init__(
        self,
        kernels: ModuleType,
        cache: KVCache,
        rows: PagedRows,
        decodes: Sequence[tuple[int, int]],
        tiles: Tiles | None,
        splits: int,
    ) -> None:
        self.rows = rows
        self._kernels = kernels
        self._cache = cache
        self._decodes = [(start, end, rows.part(start, end)) for start, end in decodes]
        self._tiles = tiles
        self._splits = splits

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `runner.models.ouro.Attend`."""
        keys, values = self._cache.keys[:, layer], self._cache.values[:, layer]
        self._kernels.write_kv(q, k, v, keys, values, self.rows)
        result = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        self.attend(layer, q, result)
        return result

    def attend(self, layer: int, q: Tensor, out: Tensor) -> None:
        """Attention alone: K and V of the rows are in the pool. Padding rows are left as they are
        or set to zero.
        """
        keys, values = self._cache.keys[:, layer], self._cache.values[:, layer]
        for start, end, rows in self._decodes:
            self._kernels.decode_attention(
                q[start:end], keys, values, rows, out[start:end], splits=self._splits
            )
        if self._tiles is not None:
            self._kernels.prefill_attention(q, keys, values, self.rows, self._tiles, out)


def split_rows(
    spans: Sequence[Span], *, every_row_decodes: bool = False
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Runs [start, end) of decode rows, and (first row, count) of tiles, over all rows in order."""
    decodes: list[tuple[int, int]] = []
    tiles: list[tuple[int, int]] = []
    row = 0
    for span in spans:
        count = span.end - span.start
        if every_row_decodes or count == 1:
            if decodes and decodes[-1][1] == row:
                decodes[-1] = (decodes[-1][0], row + count)
            else:
                decodes.append((row, row + count))
        else:
            tiles += cut_tiles(row, count)
        row += count
    return decodes, tiles


def cut_tiles(first: int, count: int) -> list[tuple[int, int]]:
    """(first row, count) of every tile of `count` rows from `first` on."""
    return [(first + done, min(TILE_ROWS, count - done)) for done in range(0, count, TILE_ROWS)]
