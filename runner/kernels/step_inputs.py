"""The small inputs of one step: numbers of every row, packed, sent in one copy to a fixed place.

Graphs read the same addresses whenever they are replayed. A step fills the columns that it reads;
rows whose slot is -1 are padding, and nothing else of them is looked at.
"""

from typing import Final, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from .sampling_rows import SamplingRows

_Column = TypeVar("_Column")
_WORDS: Final = 15  # of 32 bits in a row: four columns of 64 bits and seven of 32
_ALIGNED: Final = 16  # rows: every column begins at a multiple of 64 bytes


class StepColumns(NamedTuple, Generic[_Column]):
    """What a step may ask of its rows, one entry per row, on the device or on the host."""

    temperatures: _Column  # fp64
    top_ps: _Column  # fp64
    seeds: _Column  # int64
    indices: _Column  # int64, of the outputs to be drawn
    slots: _Column  # int32, -1: padding
    tokens: _Column  # int32, -1: the device has it
    planes: _Column  # int32
    positions: _Column  # int32
    loops: _Column  # int32, that the token of a coda ran
    top_ks: _Column  # int32
    thresholds: _Column  # fp32, of the exit


def packed_numbers(capacity: int, device: torch.device, *, pinned: bool = False) -> Tensor:
    """Room for the columns of `capacity` rows: int32, padding throughout."""
    words = _WORDS * _stride(capacity)
    return torch.full((words,), -1, dtype=torch.int32, device=device, pin_memory=pinned)


def columns_of(numbers: Tensor, capacity: int) -> StepColumns[Tensor]:
    """The columns within what `packed_numbers` made."""
    words = numbers.view(_WORDS, _stride(capacity))
    temperatures, top_ps, seeds, indices = words[:8].view(4, -1)  # the wide ones first: aligned
    slots, tokens, planes, positions, loops, top_ks, thresholds = words[8:]
    columns = StepColumns(
        temperatures.view(torch.float64),
        top_ps.view(torch.float64),
        seeds.view(torch.int64),
        indices.view(torch.int64),
        slots,
        tokens,
        planes,
        positions,
        loops,
        top_ks,
        thresholds.view(torch.float32),
    )
    return StepColumns(*(column[:capacity] for column in columns))


def _stride(capacity: int) -> int:
    return -(-capacity // _ALIGNED) * _ALIGNED


class PreludeInputs(NamedTuple):
    """Which slots begin a token, and which."""

    slots: Tensor
    tokens: Tensor


class LoopInputs(NamedTuple):
    """Where each row lies, and the exit threshold of its request."""

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
    """The columns on the device, with room for `capacity` rows of any operation."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self._numbers = packed_numbers(capacity, device)
        self._columns = columns_of(self._numbers, capacity)

    def send(self, numbers: Tensor) -> None:
        """Copy packed numbers behind what was enqueued; the host does not wait."""
        self._numbers.copy_(numbers, non_blocking=True)

    def prelude(self, rows: int) -> PreludeInputs:
        """What a PRELUDE step reads."""
        columns = self._columns
        return PreludeInputs(columns.slots[:rows], columns.tokens[:rows])

    def loop(self, rows: int) -> LoopInputs:
        """What a RECURRENT step reads."""
        own = self._columns
        columns = (own.slots, own.planes, own.positions, own.thresholds)
        return LoopInputs(*(column[:rows] for column in columns))

    def coda(self, rows: int) -> CodaInputs:
        """What a CODA step reads."""
        own = self._columns
        asked = (own.slots, own.temperatures, own.top_ps, own.top_ks, own.seeds, own.indices)
        sampling = SamplingRows(*(column[:rows] for column in asked))
        return CodaInputs(sampling, own.positions[:rows], own.loops[:rows])
