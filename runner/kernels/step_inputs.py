"""The small inputs of one step: numbers of every row, packed, sent in one copy to a fixed place.

Graphs read the same addresses whenever they are replayed. Rows behind the last one are padding.
"""

from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .sampling_rows import SamplingRows
from .tables import upload

_WIDEST: Final = 12  # columns of 32 bits: those of a coda


class PreludeInputs(NamedTuple):
    """Tokens int32, -1 where the device has them."""

    slots: Tensor
    tokens: Tensor


class LoopInputs(NamedTuple):
    """Where each row lies, and the exit threshold of its request (fp32)."""

    slots: Tensor
    planes: Tensor
    positions: Tensor
    thresholds: Tensor


class CodaInputs(NamedTuple):
    """What each row samples, its position and how many loops its token ran."""

    sampling: SamplingRows
    positions: Tensor
    loops: Tensor


class StepInputs:
    """Room for `capacity` rows of any operation."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        # Padding from the start: -1 is no slot, whichever operation reads it.
        self._numbers = torch.full((_WIDEST * capacity,), -1, dtype=torch.int32, device=device)

    def send(self, columns: NDArray[np.int32]) -> None:
        """Put [columns, rows] where the views below find them."""
        self._numbers[: columns.size].copy_(
            upload(columns.reshape(-1), self._numbers.device), non_blocking=True
        )

    def _views(self, columns: int, rows: int) -> Tensor:
        return self._numbers[: columns * rows].view(columns, rows)

    def prelude(self, rows: int) -> PreludeInputs:
        """The columns that `prelude_columns` made."""
        return PreludeInputs(*self._views(2, rows))

    def loop(self, rows: int) -> LoopInputs:
        """The columns that `loop_columns` made."""
        slots, planes, positions, thresholds = self._views(4, rows)
        return LoopInputs(slots, planes, positions, thresholds.view(torch.float32))

    def coda(self, rows: int) -> CodaInputs:
        """The columns that `coda_columns` made."""
        columns = self._views(12, rows)
        wide = columns[:8].view(4, 2 * rows)  # 64 bits each, first for their alignment
        temperatures, top_ps = wide[0].view(torch.float64), wide[1].view(torch.float64)
        seeds, indices = wide[2].view(torch.int64), wide[3].view(torch.int64)
        slots, positions, loops, top_ks = columns[8:]
        sampling = SamplingRows(slots, temperatures, top_ps, top_ks, seeds, indices)
        return CodaInputs(sampling, positions, loops)


def prelude_columns(slots: list[int], tokens: list[int], rows: int) -> NDArray[np.int32]:
    """Columns of a PRELUDE step, padded to `rows`."""
    columns = np.zeros((2, rows), dtype=np.int32)
    count = len(slots)
    columns[0, :count], columns[0, count:] = slots, -1
    columns[1, :count] = tokens
    return columns


def loop_columns(
    slots: list[int], planes: list[int], positions: list[int], thresholds: list[float], rows: int
) -> NDArray[np.int32]:
    """Columns of a RECURRENT step, padded to `rows`."""
    columns = np.zeros((4, rows), dtype=np.int32)
    count = len(slots)
    columns[0, :count], columns[0, count:] = slots, -1
    columns[1, :count], columns[2, :count] = planes, positions
    columns[3].view(np.float32)[:count] = thresholds
    return columns


def coda_columns(
    slots: list[int],
    positions: list[int],
    loops: list[int],
    sampling: list[tuple[float, float, int, int, int]],
    rows: int,
) -> NDArray[np.int32]:
    """Columns of a CODA step, padded to `rows`; of every row's sampling (temperature, top_p, top_k,
    seed, index).
    """
    columns = np.zeros((12, rows), dtype=np.int32)
    count = len(slots)
    wide = columns[:8].reshape(4, 2 * rows)
    temperatures, top_ps, top_ks, seeds, indices = zip(*sampling, strict=True)
    wide[0].view(np.float64)[:count] = temperatures
    wide[1].view(np.float64)[:count] = top_ps
    wide[2].view(np.int64)[:count] = seeds
    wide[3].view(np.int64)[:count] = indices
    columns[8, :count], columns[8, count:] = slots, -1
    columns[9, :count], columns[10, :count], columns[11, :count] = positions, loops, top_ks
    return columns
