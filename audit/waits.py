"""When a request waits, and for how many steps: from its own events, one after another.

A wait begins where an event leaves the request WAITING or its work QUEUED, and ends with the event
that takes it on. What is counted are the steps that went by without it.
"""

from typing import Final, NamedTuple

from .legality import Move

ENDS_WAIT: Final = frozenset({"admit", "resume", "select", "activate", "finish", "abort"})
ADMISSION: Final = "admission"


class Since(NamedTuple):
    """Where a wait began. `first_step` is the earliest that could have ended it; `work` is
    `admission`, or the key of the work that is queued.
    """

    work: str
    seq: int
    step: int
    first_step: int


def begins(move: Move, seq: int, step: int) -> Since | None:
    """The wait that an event begins, if it does."""
    if move.status is not None and move.status[1] == "WAITING":
        work = ADMISSION
    elif move.work is not None and move.work[1].startswith("QUEUED:"):
        work = move.work[1].partition(":")[2]
    else:
        return None
    # What results queue can go into the next step's batch at the earliest.
    return Since(work, seq, step, step + (move.trigger == "enqueue"))


def waited(since: Since, step: int) -> int:
    """The steps that a wait took that ended in `step`."""
    return max(0, step - since.first_step)
