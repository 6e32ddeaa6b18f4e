"""The invariants of contract §6, one class per id; `ALL` is the order in which they see an event.

S12 looks before S1 moves the machines; everyone after S1 sees the state that the event leaves.
"""

from .base import Handler, Invariant
from .batches import S6Batch
from .blocks import S9Blocks
from .drain import D1Drained, D2OneEnd
from .legal_moves import S1Legal
from .liveness import L1NoEmptyStep
from .log_chain import S13Log
from .outputs import S8Outputs
from .ranges import S7Ranges
from .safety_machines import S2SlotLimit, S3ActiveHoldsSlot, S4SlotHasOwner, S5PendingWork
from .tickets import S11Tickets, S12Identity

ALL: tuple[type[Invariant], ...] = (
    S12Identity,
    S1Legal,
    S6Batch,
    S7Ranges,
    S8Outputs,
    S9Blocks,
    S2SlotLimit,
    S3ActiveHoldsSlot,
    S4SlotHasOwner,
    S5PendingWork,
    S11Tickets,
    L1NoEmptyStep,
    D1Drained,
    D2OneEnd,
)  # S13 reads the rows before all others, and the seal after them

__all__ = ["ALL", "Handler", "Invariant", "S13Log"]
