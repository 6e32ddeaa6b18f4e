"""What a request can be in one step, as one number for each step of its lane.

The numbers are the page's: `page/lanes.js` paints them in the order in which they stand here.
"""

from typing import Final

from rlt_fsm.states import RequestStatus, WorkKey

GONE: Final = 0
WAITING: Final = 1
PARKED: Final = 2
OFFLOADED: Final = 3
REWOUND: Final = 4
RECEIVING: Final = 5
QUEUED: Final = 6
IN_FLIGHT: Final = 7
FIRST_KEY: Final = 8
KEYS: Final = tuple(key.value for key in WorkKey)
REPLAYED: Final = FIRST_KEY + len(KEYS)
TRANSFERRING: Final = REPLAYED + 1
ENDED: Final = REPLAYED + 2

# Number → (name in the styles, what the legend says).
KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("gone", "not there"),
    ("waiting", "waiting to be admitted"),
    ("parked", "gave its slot up, KV on the device"),
    ("offloaded", "preempted, KV on the host"),
    ("rewound", "preempted, KV lost"),
    ("receiving", "receiving KV"),
    ("queued", "ready, in no batch"),
    ("in-flight", "its batch is in flight"),
    *((key.lower().replace("_", "-"), key) for key in KEYS),
    ("replayed", "computed again after a rewind"),
    ("transferring", "handing KV over"),
    ("ended", "ended, not retired"),
)

_BY_STATUS: Final = {
    RequestStatus.RECEIVING.value: RECEIVING,
    RequestStatus.TRANSFERRING.value: TRANSFERRING,
    RequestStatus.FINISHED.value: ENDED,
}


def kind_of(status: str, work: str, kv: str, *, was_admitted: bool) -> int:
    """What a request is that is in no batch of the step; states are the machines'."""
    if status == RequestStatus.ACTIVE.value:
        return IN_FLIGHT if work.startswith("TAKEN:") else QUEUED
    if status != RequestStatus.WAITING.value:
        return _BY_STATUS.get(status, GONE)
    if kv == "OFFLOADED":
        return OFFLOADED
    if work.startswith("PARKED:"):
        return PARKED
    return REWOUND if was_admitted else WAITING
