"""What the device was doing: when each batch began and ended on it, by its own clock."""

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

import torch

from rlt_fsm.batch import Batch
from runner.on_device import chosen
from runner.torch_runner import TorchRunner


class _Timed(NamedTuple):
    ticket: int
    begun: torch.cuda.Event
    ended: torch.cuda.Event


class DeviceTimes(NamedTuple):
    """Of some batches, in seconds: their own time, and the time between them."""

    busy: float
    idle: float

    @property
    def idle_share(self) -> float:
        """The part of the whole in which nothing was computed."""
        return self.idle / (self.busy + self.idle) if self.busy else 0.0


class WatchedRunner(TorchRunner):
    """A TorchRunner with an event before and behind the launches of every batch.

    The first happens when the device has nothing left to do, or has come past what was launched
    before: time until the first kernel arrives counts as the batch's own.
    """

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]  # as TorchRunner's
        self._timed: list[_Timed] = []
        self._is_cuda = self._device.type == "cuda"

    def submit(self, batch: Batch) -> None:
        """See `TorchRunner.submit`."""
        if not self._is_cuda:
            super().submit(batch)
            return
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        with chosen(self._device):  # an event is of the device that is current when it is recorded
            begun.record()
            super().submit(batch)
            ended.record()
        self._timed.append(_Timed(batch.ticket, begun, ended))

    def times(self, tickets: Collection[int]) -> DeviceTimes | None:
        """Of these batches in order, all of them over; None where there is no device clock."""
        own = [timed for timed in self._timed if timed.ticket in tickets]
        if not own:
            return None
        torch.cuda.synchronize(self._device)
        busy = sum(timed.begun.elapsed_time(timed.ended) for timed in own)
        gaps = (before.ended.elapsed_time(after.begun) for before, after in pairwise(own))
        idle = sum(max(0.0, gap) for gap in gaps)
        return DeviceTimes(busy / 1e3, idle / 1e3)
