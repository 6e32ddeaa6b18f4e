"""The invariants of contract §6, one class per id; `ALL` is the order in which they see an event.

S12, S10, F1 and F3 look before S1 moves the machines; everyone after S1 sees the state that the
event leaves. F2 looks at a batch before F4 counts it.
"""

from .base import Handler, Invariant
from .batches import S6Batch
from .blocks import S9Blocks
from .drain import D1Drained, D2OneEnd
from .fairness import F1AdmissionOrder, F3NoInversion
from .identity import S12Identity
from .legal_moves import S1Legal
from .liveness import L1NoEmptyStep
from .log_chain import S13Log
from .outputs import S8Outputs
from .preemption import S10Preemption
from .progress import L2NetProgress, L3WorthIt
from .ranges import S7Ranges
from .safety_machines import S2SlotLimit, S3ActiveHoldsSlot, S4SlotHasOwner, S5PendingWork
from .tickets import S11Tickets
from .turns import F2PromptShare, F4Served

ALL: tuple[type[Invariant], ...] = (
    S12Identity,
    S10Preemption,
    F1AdmissionOrder,
    F3NoInversion,
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
    F2PromptShare,
    F4Served,
    L1NoEmptyStep,
    L3WorthIt,
    L2NetProgress,
    D1Drained,
    D2OneEnd,
)  # S13 reads the rows before all others, and the seal after them

__all__ = ["ALL", "Handler", "Invariant", "S13Log"]
