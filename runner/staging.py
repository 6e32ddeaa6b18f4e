"""Host memory of the batches in flight: what is sent to the device, and what comes back from it.

Pinned where there is a CUDA device, taken once, and used in turn. A stage belongs to one batch from
its launch until its result has been read, so nothing that the device may still read or write is
ever overwritten.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .kernels.step_inputs import StepColumns, columns_of, packed_numbers


class StepOutputs(NamedTuple):
    """Where a step leaves its results, by row, on the device or on the host."""

    exits: Tensor  # int8
    sampled: Tensor  # int32, tokens and logprobs: copied as one
    tokens: Tensor  # int64, within `sampled`
    logprobs: Tensor  # fp32, the same


def step_outputs(capacity: int, device: torch.device, *, pinned: bool = False) -> StepOutputs:
    """Room for the results of `capacity` rows."""
    exits = torch.zeros(capacity, dtype=torch.int8, device=device, pin_memory=pinned)
    sampled = torch.zeros(3 * capacity, dtype=torch.int32, device=device, pin_memory=pinned)
    tokens = sampled[: 2 * capacity].view(torch.int64)
    logprobs = sampled[2 * capacity :].view(torch.float32)
    return StepOutputs(exits, sampled, tokens, logprobs)


class Stage:
    """The host's side of one batch; `done` is there on CUDA, and recorded behind its launches."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        host, is_cuda = torch.device("cpu"), device.type == "cuda"
        self.numbers = packed_numbers(capacity, host, pinned=is_cuda)
        columns = columns_of(self.numbers, capacity)
        self.columns: StepColumns[NDArray[np.generic]] = StepColumns(*(c.numpy() for c in columns))
        self._outputs = step_outputs(capacity, host, pinned=is_cuda)
        self.exits = self._outputs.exits.numpy()
        self.tokens = self._outputs.tokens.numpy()
        self.logprobs = self._outputs.logprobs.numpy()
        self.done: torch.cuda.Event | None = None
        if is_cuda:
            self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's

    def put_slots(self, slots: list[int], rows: int) -> None:
        """The rows' slots, and padding behind them up to `rows`."""
        column = self.columns.slots
        column[: len(slots)] = slots
        column[len(slots) : rows] = -1

    def fetch_exits(self, outputs: StepOutputs) -> None:
        """Copy who may leave behind what was launched; there when `done` has happened."""
        self._outputs.exits.copy_(outputs.exits, non_blocking=True)

    def fetch_sampled(self, outputs: StepOutputs) -> None:
        """The same for tokens and logprobs."""
        self._outputs.sampled.copy_(outputs.sampled, non_blocking=True)


class StagingRing:
    """As many stages as batches may be in flight, each used again when its batch is over."""

    def __init__(self, count: int, capacity: int, device: torch.device) -> None:
        self._free = deque(Stage(capacity, device) for _ in range(count))
        self._count = count

    def take(self) -> Stage:
        """A stage for a batch about to be launched."""
        assert self._free, f"more batches in flight than the {self._count} there is room for"
        return self._free.popleft()

    def give_back(self, stage: Stage) -> None:
        """Its batch is over on the device, and its results were read."""
        self._free.append(stage)
