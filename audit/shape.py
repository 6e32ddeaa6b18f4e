"""Says why a row cannot be read: what its trigger must tell, and what it lacks.

Asked only about rows that some invariant stumbled over, so that the many good rows cost nothing.
"""

from typing import Final

import msgspec

from .facts import (
    BatchData,
    BlockData,
    CloseData,
    FinishData,
    OpenData,
    PreemptionData,
    SubmitData,
    decode,
)
from .legality import Move
from .reader import EXTRA, REF, TICKET, A, B, C, D, E, Event

COLUMN_NAMES: Final = Event._fields

# Trigger → the columns that must hold whole numbers, and what its `extra` must decode to.
TELLS: Final[dict[str, tuple[tuple[int, ...], type]]] = {
    "open": ((), OpenData),
    "close": ((), CloseData),
    "submit": ((), SubmitData),
    "submit_remote": ((), SubmitData),
    "refuse": ((), SubmitData),
    "select": ((TICKET, A, B, C, E), BlockData),
    "output": ((TICKET, A, B, C), BlockData),
    "yield": ((), PreemptionData),
    "offload": ((), PreemptionData),
    "offload_resident": ((), PreemptionData),
    "rewind": ((), PreemptionData),
    "submit_batch": ((TICKET,), BatchData),
    "finish": ((), FinishData),
}


def explain(event: Event, move: Move) -> str | None:
    """Why the row cannot be read, in a few words; None if it can."""
    columns, data = TELLS.get(move.trigger, ((), BlockData))
    for column in (REF, *columns) if move.is_of_request else columns:
        if not isinstance(event[column], int):
            return f"`{move.trigger}` tells no {COLUMN_NAMES[column]} ({event[column]!r})"
    exit_depth = event[A]
    if move.trigger == "enqueue" and _is_to_coda(move) and not isinstance(exit_depth, int):
        return f"`enqueue` to DECODE_CODA tells no exit depth ({exit_depth!r})"
    depth: object = event[D]
    if move.trigger == "select" and depth is not None and not isinstance(depth, int):
        return f"`select` tells a depth of {depth!r}"
    try:
        decode(event[EXTRA], data)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return f"the data of `{move.trigger}`: {error}"
    return None


def _is_to_coda(move: Move) -> bool:
    return move.work is not None and move.work[1] == "QUEUED:DECODE_CODA"
