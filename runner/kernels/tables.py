"""Block tables that stay on the device, one slot per state row, and small uploads.

A table is sent again only when it is another one; rows of a launch name their slots.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlt_fsm.batch import BlockTable


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """`array` on `device`, without waiting for the device.

    From pinned memory, which torch keeps until the copy is done; pageable memory would make the
    host wait for everything enqueued before.
    """
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device, copy=True)
    return tensor.pin_memory().to(device, non_blocking=True)


class SlotTables:
    """int32 [slots, planes, pages]; grows where a slot or a table is larger than ever before."""

    def __init__(self, slots: int, planes: int, pages: int, device: torch.device) -> None:
        self.tensor = torch.zeros((slots, planes, pages), dtype=torch.int32, device=device)
        self._held: list[BlockTable | None] = [None] * slots

    def put(self, slot: int, table: BlockTable) -> bool:
        """From here on `slot` has this table; whether it had another one before."""
        held = self._held
        if slot < len(held) and held[slot] is table:
            return False
        slots, planes, pages = self.tensor.shape
        assert len(table) == planes, (len(table), planes)
        used = len(table[0])
        if slot >= slots or used > pages:
            self._grow(max(slots, slot + 1), max(pages, used))
        is_new = self._held[slot] != table
        if is_new:
            blocks = np.array(table, dtype=np.int32)
            self.tensor[slot, :, :used] = upload(blocks, self.tensor.device)
        self._held[slot] = table
        return is_new

    def reserve(self, slots: int, pages: int) -> None:
        """Have room for so much, so that the tensor stays where it is from now on."""
        if slots > self.tensor.shape[0] or pages > self.tensor.shape[2]:
            self._grow(max(slots, self.tensor.shape[0]), max(pages, self.tensor.shape[2]))

    def _grow(self, slots: int, pages: int) -> None:
        old = self.tensor
        self.tensor = old.new_zeros((slots, old.shape[1], pages))
        self.tensor[: old.shape[0], :, : old.shape[2]] = old
        self._held += [None] * (slots - old.shape[0])
