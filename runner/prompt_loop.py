"""A loop over prompt rows at fixed places, so that it can be captured and replayed.

Launched one by one, the kernels of a prompt's loop cost the host more than the device, and nothing
else is scheduled meanwhile. What a captured launch needs lives here; what a loop computes does not.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .fused import FusedLoop
from .kernels.backend import TritonAttention, cut_tiles
from .kernels.paging import TILE_ROWS, PagedRows, Tiles
from .kernels.tables import upload
from .kv_cache import KVCache, Span

_Layout = tuple[int, list[tuple[int, int, int]]]  # rows; state row, start and end of each span
_MOST_ENDS: Final = 32  # requests of one call that a captured loop has tiles for


class PromptLoop:
    """The launches of one loop over up to `most` rows, in tiles, of about `ends` requests.

    Inputs and results have their place from the start; they are padding until `run`.
    """

    def __init__(
        self,
        loop: FusedLoop,
        attention: TritonAttention,
        cache: KVCache,
        *,
        hidden_size: int,
        most: int,
        ends: int,
    ) -> None:
        self._fused = loop
        self._attention = attention
        self._cache = cache
        self.most = most
        self._ends = min(ends, _MOST_ENDS)
        device, dtype = cache.device, cache.geometry.dtype
        self._states = torch.zeros((most, hidden_size), dtype=dtype, device=device)
        # Slots, planes, positions, and which of the states: -1 is padding.
        self._rows = torch.full((4, most), -1, dtype=torch.int32, device=device)
        self._tiles = torch.zeros((2, self._tiles_of(most)), dtype=torch.int32, device=device)
        self._layout: _Layout | None = None  # what lies there, but for the planes

    def _tiles_of(self, rows: int) -> int:
        """Tiles of a captured loop: every request may end in the middle of one."""
        return -(-rows // TILE_ROWS) + self._ends

    def holds(self, spans: Sequence[Span], rows: int) -> bool:
        """Whether `spans` fit into a launch of so many rows; single positions are better off with
        decode attention.
        """
        lengths = [span.end - span.start for span in spans]
        tiles = sum(-(-length // TILE_ROWS) for length in lengths)
        fits = sum(lengths) <= rows <= self.most and tiles <= self._tiles_of(rows)
        return fits and max(lengths) > 1

    def run(
        self, hidden: Tensor, spans: Sequence[Span], rows: int, launch: Callable[[int], object]
    ) -> Tensor:
        """Take `hidden` [N, H] through one loop in a launch of `rows` rows: [N, H], valid until the
        next call.
        """
        own = hidden.shape[0]
        columns = self._attention.columns(spans)
        layout = rows, [(span.state_row, span.start, span.end) for span in spans]
        if layout == self._layout:  # a later loop of a prompt: other planes, and nothing else
            self._rows[1, :own] = upload(columns[1], hidden.device)
        else:
            self._lay_out(layout, columns)
        self._states[:own] = hidden
        launch(rows)
        return self._states[:own]

    def _lay_out(self, layout: _Layout, columns: NDArray[np.int32]) -> None:
        """Send what `columns` say of the spans' rows, and their tiles."""
        self._layout = None  # until all of it was sent
        rows, spans = layout
        own, device = columns.shape[1], self._rows.device
        padded = np.full((4, rows), -1, dtype=np.int32)
        padded[:3, :own] = columns
        padded[3, :own] = np.arange(own)
        tiles = np.zeros((2, self._tiles_of(rows)), dtype=np.int32)
        cut, row = [], 0
        for _, start, end in spans:
            cut += cut_tiles(row, end - start)
            row += end - start
        tiles[:, : len(cut)] = np.array(cut, dtype=np.int32).T
        self._rows[:, :rows] = upload(padded, device)
        self._tiles[:, : tiles.shape[1]] = upload(tiles, device)
        self._layout = layout

    def launch(self, rows: int) -> None:
        """Every layer once for the rows that were sent, and their states back into place."""
        slots, planes, positions, order = self._rows[:, :rows]
        tiles = Tiles(*self._tiles[:, : self._tiles_of(rows)])
        kernels, rotation = self._attention.kernels, self._fused.rotation
        paged = PagedRows(self._attention.tables.tensor, slots, planes, positions)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
            keys, values = self._cache.keys[:, layer], self._cache.values[:, layer]
            kernels.write_kv(q, k, v, keys, values, paged, rotation)
            kernels.prefill_attention(q, keys, values, paged, tiles, out)

        x, y = self._fused.first_norm(self._states, order)
        self._states[:rows] = self._fused.run(x, y, attend)
