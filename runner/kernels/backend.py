"""The attention backend that launches the kernels: spans in, an `attend` for every layer out."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from runner.kv_cache import KVCache, Span
from runner.models.ouro import Attend

from .decode_attention import choose_splits, decode_attention
from .kv_write import write_kv
from .paging import TILE_ROWS, PagedRows, Tiles
from .prefill_attention import prefill_attention
from .tables import SlotTables, upload

# Programs per row where results must not depend on the batch: enough for small batches.
INVARIANT_SPLITS: Final = 8


class TritonAttention:
    """Kernels over one pool; a span's slot is its request's state row.

    Spans of one position run as decode rows, longer ones as prompt tiles. With `batch_invariant`
    every position is a decode row and rows are always split alike, so that a position's result
    depends on nothing but its own history.
    """

    def __init__(self, cache: KVCache, heads: int, *, batch_invariant: bool = False) -> None:
        self._cache = cache
        self._heads = heads
        self._batch_invariant = batch_invariant
        self._tables = SlotTables(1, cache.geometry.planes, 1, cache.device)
        self._processors = 1
        if cache.device.type == "cuda":
            properties = torch.cuda.get_device_properties(cache.device)
            self._processors = properties.multi_processor_count

    def prepare(self, spans: Sequence[Span]) -> Attend:
        """See `runner.attention.AttentionBackend`."""
        self._cache.enqueue(spans)
        owners = {span.state_row: span.owner for span in spans}
        assert all(owners[span.state_row] == span.owner for span in spans), "one owner per row"
        for span in spans:
            self._tables.put(span.state_row, span.table)
        rows = self._rows(spans)
        decodes, tiles = split_rows(spans, every_row_decodes=self._batch_invariant)
        return _TritonCall(self._cache, rows, decodes, self._tiles(tiles), self._splits(decodes))

    def _rows(self, spans: Sequence[Span]) -> PagedRows:
        counts = [span.end - span.start for span in spans]
        columns = np.empty((3, sum(counts)), dtype=np.int32)
        columns[0] = np.repeat([span.state_row for span in spans], counts)
        columns[1] = np.repeat([self._cache.plane(span.depth) for span in spans], counts)
        columns[2] = np.concatenate([np.arange(span.start, span.end) for span in spans])
        slots, planes, positions = upload(columns, self._cache.device)
        return PagedRows(self._tables.tensor, slots, planes, positions)

    def _tiles(self, tiles: Sequence[tuple[int, int]]) -> Tiles | None:
        if not tiles:
            return None
        first, count = upload(np.array(tiles, dtype=np.int32).T.copy(), self._cache.device)
        return Tiles(first, count)

    def _splits(self, decodes: Sequence[tuple[int, int]]) -> int:
        if self._batch_invariant:
            return INVARIANT_SPLITS
        rows = sum(end - start for start, end in decodes)
        return choose_splits(rows, self._cache.geometry.kv_heads, self._processors)


class _TritonCall:
    """`attend` for the layers of one model call."""

    def __init__(
        self,
        cache: KVCache,
        rows: PagedRows,
        decodes: Sequence[tuple[int, int]],
        tiles: Tiles | None,
        splits: int,
    ) -> None:
        self._cache = cache
        self._rows = rows
        self._decodes = [(start, end, rows.part(start, end)) for start, end in decodes]
        self._tiles = tiles
        self._splits = splits

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._cache.keys[:, layer], self._cache.values[:, layer]
        write_kv(q, k, v, keys, values, self._rows)
        result = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for start, end, rows in self._decodes:
            part = result[start:end]
            decode_attention(q[start:end], keys, values, rows, part, splits=self._splits)
        if self._tiles is not None:
            prefill_attention(q, keys, values, self._rows, self._tiles, result)
        return result


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
            tiles += [
                (row + done, min(TILE_ROWS, count - done)) for done in range(0, count, TILE_ROWS)
            ]
        row += count
    return decodes, tiles
