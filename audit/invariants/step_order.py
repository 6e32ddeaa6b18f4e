"""The part of S13 that knows the order of events inside a step (contract §4)."""

from collections.abc import Iterable
from typing import Final

ARRIVALS: Final = 0
EARLY_RESULTS: Final = 1  # asynchronously: of earlier steps' batches, before anything is planned
RESULTS: Final = 4
RETIRES: Final = 8

PHASES: Final[dict[str, int]] = {
    **dict.fromkeys(("open", "recover", "submit", "submit_remote", "refuse", "abort"), ARRIVALS),
    **dict.fromkeys(("admit", "resume", "activate", "reserve", "verdict", "select", "grow"), 2),
    **dict.fromkeys(("yield", "offload", "offload_resident", "rewind", "evict"), 2),
    "submit_batch": 3,
    **dict.fromkeys(("complete_batch", "fail_batch"), RESULTS),
    "output": 5,
    **dict.fromkeys(("enqueue", "finish", "drop", "publish"), 6),
    "retire_batch": 7,
    "retire": RETIRES,
    "close": 9,
}


def first_out_of_order(phases: Iterable[int], *, is_async: bool = False) -> int | None:
    """The place of the first event that belongs before one that came already, or None.

    A retire among the arrivals is that of a request aborted there. Asynchronously results come in
    any order among themselves, before a plan or after it.
    """
    phase = ARRIVALS
    for place, told in enumerate(phases):
        own = told
        if own == RETIRES and phase == ARRIVALS:
            continue
        if is_async and RESULTS <= own <= RETIRES:
            own = RESULTS if phase > EARLY_RESULTS else EARLY_RESULTS
        if own < phase:
            return place
        phase = own
    return None
