"""The part of S13 that knows the order of events inside a synchronous step (contract §4)."""

from collections.abc import Iterable
from typing import Final

ARRIVALS: Final = 0
RETIRES: Final = 7

PHASES: Final[dict[str, int]] = {
    **dict.fromkeys(("open", "recover", "submit", "submit_remote", "refuse", "abort"), ARRIVALS),
    **dict.fromkeys(("admit", "resume", "activate", "reserve", "verdict", "select", "grow"), 1),
    **dict.fromkeys(("yield", "offload", "offload_resident", "rewind", "evict"), 1),
    "submit_batch": 2,
    **dict.fromkeys(("complete_batch", "fail_batch"), 3),
    "output": 4,
    **dict.fromkeys(("enqueue", "finish", "drop", "publish"), 5),
    "retire_batch": 6,
    "retire": RETIRES,
    "close": 8,
}


def first_out_of_order(phases: Iterable[int]) -> int | None:
    """The place of the first event that belongs before one that came already, or None.

    A retire among the arrivals is that of a request aborted there.
    """
    phase = ARRIVALS
    for place, own in enumerate(phases):
        if own == RETIRES and phase == ARRIVALS:
            continue
        if own < phase:
            return place
        phase = own
    return None
