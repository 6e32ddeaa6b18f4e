"""The five machines and the joint table: every legal move, declared once, as data.

Each machine is in the `transitions` library's own form, so that `transitions.Machine(**MACHINE)`
builds it as it stands. A trigger with several destinations is declared once per destination
(`enqueue:DECODE_CODA`); the log shows the part before the colon (`public_trigger`). No guards, no
callbacks: which destination is a decision, taken before the event and told by it.

Everything else is derived: the flat table of the hot path (`moves.py`), the reference machines of
the tests, the auditor's legality table and the pictures in `docs/`.
"""

from typing import Final, TypedDict

from .states import RequestStatus, WorkKey


class Transition(TypedDict):
    """One edge, in the form `transitions.Machine` takes."""

    trigger: str
    source: str
    dest: str


class MachineSpec(TypedDict):
    """One machine, as keyword arguments of `transitions.Machine`."""

    name: str
    states: list[str]
    initial: str
    transitions: list[Transition]


NULL: Final = "NULL"  # before submit and after retire; SQL NULL in the log
IDLE: Final = "IDLE"
FREE, HELD = "FREE", "HELD"
NONE, RESIDENT, OFFLOADED = "NONE", "RESIDENT", "OFFLOADED"
SUBMITTED, COMPLETED, FAILED, RETIRED = "SUBMITTED", "COMPLETED", "FAILED", "RETIRED"

QUEUED = {key: f"QUEUED:{key}" for key in WorkKey}
TAKEN = {key: f"TAKEN:{key}" for key in WorkKey}
PARKED = {key: f"PARKED:{key}" for key in WorkKey}
WORK_STATES = [IDLE, *QUEUED.values(), *TAKEN.values(), *PARKED.values()]

# What may follow each work key. The last two of PROMPT_ATOMIC and PROMPT_RECURRENT are reached
# only from replay rows, after a rewind: the outputs exist already, so no coda is due.
SUCCESSORS: dict[WorkKey, tuple[WorkKey, ...]] = {
    WorkKey.PROMPT_ATOMIC: (
        WorkKey.PROMPT_ATOMIC,
        WorkKey.DECODE_CODA,
        WorkKey.DECODE_PRELUDE,
        WorkKey.SPECULATIVE,
    ),
    WorkKey.PROMPT_PRELUDE: (WorkKey.PROMPT_PRELUDE, WorkKey.PROMPT_RECURRENT),
    WorkKey.PROMPT_RECURRENT: (
        WorkKey.PROMPT_PRELUDE,
        WorkKey.PROMPT_RECURRENT,
        WorkKey.DECODE_CODA,
        WorkKey.DECODE_PRELUDE,
        WorkKey.SPECULATIVE,
    ),
    WorkKey.DECODE_CODA: (WorkKey.DECODE_PRELUDE, WorkKey.SPECULATIVE),
    WorkKey.DECODE_PRELUDE: (WorkKey.DECODE_RECURRENT,),
    WorkKey.DECODE_RECURRENT: (WorkKey.DECODE_RECURRENT, WorkKey.DECODE_CODA),
    WorkKey.SPECULATIVE: (WorkKey.SPECULATIVE,),
}
REPLAY_ONLY_SUCCESSORS: dict[WorkKey, tuple[WorkKey, ...]] = {
    WorkKey.PROMPT_ATOMIC: (WorkKey.DECODE_PRELUDE, WorkKey.SPECULATIVE),
    WorkKey.PROMPT_RECURRENT: (WorkKey.DECODE_PRELUDE, WorkKey.SPECULATIVE),
}


def _edges(trigger: str, sources: list[str], dest: str) -> list[Transition]:
    return [{"trigger": trigger, "source": source, "dest": dest} for source in sources]


def _key_edges(
    trigger: str, sources: dict[WorkKey, str], dests: dict[WorkKey, str]
) -> list[Transition]:
    return [{"trigger": trigger, "source": sources[key], "dest": dests[key]} for key in WorkKey]


STATUS: MachineSpec = {
    "name": "status",
    "states": [NULL, *RequestStatus],
    "initial": NULL,
    "transitions": [
        *_edges("submit", [NULL], "WAITING"),
        *_edges("submit_remote", [NULL], "RECEIVING"),
        *_edges("reserve", ["WAITING"], "RECEIVING"),
        *_edges("admit:PROMPT_ATOMIC", ["WAITING"], "ACTIVE"),
        *_edges("admit:PROMPT_PRELUDE", ["WAITING"], "ACTIVE"),
        *_edges("activate", ["RECEIVING"], "ACTIVE"),
        *_edges("yield", ["ACTIVE"], "WAITING"),
        *_edges("offload", ["ACTIVE"], "WAITING"),
        *_edges("resume", ["WAITING"], "ACTIVE"),
        *_edges("rewind", ["ACTIVE"], "WAITING"),
        *_edges("export", ["ACTIVE"], "TRANSFERRING"),
        *_edges("transfer_done", ["TRANSFERRING"], "FINISHED"),
        *_edges("finish", ["ACTIVE"], "FINISHED"),
        *_edges("abort:FINISHED", ["WAITING", "RECEIVING", "ACTIVE", "TRANSFERRING"], "FINISHED"),
        *_edges("abort:TRANSFERRING", ["WAITING", "ACTIVE"], "TRANSFERRING"),
        *_edges("retire", ["FINISHED"], NULL),
    ],
}

WORK: MachineSpec = {
    "name": "work",
    "states": WORK_STATES,
    "initial": IDLE,
    "transitions": [
        *_edges("admit:PROMPT_ATOMIC", [IDLE], QUEUED[WorkKey.PROMPT_ATOMIC]),
        *_edges("admit:PROMPT_PRELUDE", [IDLE], QUEUED[WorkKey.PROMPT_PRELUDE]),
        *_edges("activate", [IDLE], QUEUED[WorkKey.DECODE_CODA]),
        *[
            edge
            for key in WorkKey
            for edge in _edges(
                f"enqueue:{key}", [TAKEN[j] for j in WorkKey if key in SUCCESSORS[j]], QUEUED[key]
            )
        ],
        *_key_edges("select", QUEUED, TAKEN),
        *_key_edges("yield", QUEUED, PARKED),
        *_key_edges("offload", QUEUED, PARKED),
        *_key_edges("resume", PARKED, QUEUED),
        *_edges("rewind", WORK_STATES, IDLE),
        *_edges("export", WORK_STATES, IDLE),
        *_edges("finish", WORK_STATES, IDLE),
        *_edges("abort:FINISHED", WORK_STATES, IDLE),
        *_edges("abort:TRANSFERRING", WORK_STATES, IDLE),
    ],
}

SLOT: MachineSpec = {
    "name": "slot",
    "states": [FREE, HELD],
    "initial": FREE,
    "transitions": [
        *_edges("admit:PROMPT_ATOMIC", [FREE], HELD),
        *_edges("admit:PROMPT_PRELUDE", [FREE], HELD),
        *_edges("activate", [FREE], HELD),
        *_edges("yield", [HELD], FREE),
        *_edges("offload", [HELD], FREE),
        *_edges("resume", [FREE], HELD),
        *_edges("rewind", [HELD], FREE),
        *_edges("staged", [HELD], FREE),
        *_edges("transfer_done", [HELD], FREE),
        *_edges("retire", [HELD], FREE),
    ],
}

KV: MachineSpec = {
    "name": "kv",
    "states": [NONE, RESIDENT, OFFLOADED],
    "initial": NONE,
    "transitions": [
        *_edges("submit_remote", [NONE], RESIDENT),
        *_edges("reserve", [NONE], RESIDENT),
        *_edges("admit:PROMPT_ATOMIC", [NONE], RESIDENT),
        *_edges("admit:PROMPT_PRELUDE", [NONE], RESIDENT),
        *_edges("offload", [RESIDENT], OFFLOADED),
        *_edges("offload_resident", [RESIDENT], OFFLOADED),
        *_edges("resume", [OFFLOADED], RESIDENT),
        *_edges("rewind", [RESIDENT, OFFLOADED], NONE),
        *_edges("retire", [RESIDENT, OFFLOADED], NONE),
    ],
}

TICKET: MachineSpec = {
    "name": "ticket",
    "states": [NULL, SUBMITTED, COMPLETED, FAILED, RETIRED],
    "initial": NULL,
    "transitions": [
        *_edges("submit_batch", [NULL], SUBMITTED),
        *_edges("complete_batch", [SUBMITTED], COMPLETED),
        *_edges("fail_batch", [SUBMITTED], FAILED),
        *_edges("retire_batch", [COMPLETED, FAILED], RETIRED),
    ],
}

REQUEST_MACHINES = (STATUS, WORK, SLOT, KV)
MACHINES = (*REQUEST_MACHINES, TICKET)

# Which machines each trigger fires. The value lists the states in which a machine that the trigger
# names is left where it is ("or not moved" in the contract); an empty tuple: it must move.
MUST: Final[tuple[str, ...]] = ()
JOINT: dict[str, dict[str, tuple[str, ...]]] = {
    "submit": {"status": MUST},
    "submit_remote": {"status": MUST, "kv": MUST},
    "reserve": {"status": MUST, "kv": MUST},
    "admit:PROMPT_ATOMIC": {"status": MUST, "work": MUST, "slot": MUST, "kv": MUST},
    "admit:PROMPT_PRELUDE": {"status": MUST, "work": MUST, "slot": MUST, "kv": MUST},
    "activate": {"status": MUST, "work": MUST, "slot": MUST},
    **{f"enqueue:{key}": {"work": MUST} for key in WorkKey if key in
       {k for successors in SUCCESSORS.values() for k in successors}},
    "select": {"work": MUST},
    "yield": {"status": MUST, "work": MUST, "slot": MUST},
    "offload": {"status": MUST, "work": MUST, "slot": MUST, "kv": MUST},
    "offload_resident": {"kv": MUST},
    "resume": {"status": MUST, "work": MUST, "slot": MUST, "kv": (RESIDENT,)},
    "rewind": {"status": ("WAITING",), "work": MUST, "slot": (FREE,), "kv": MUST},
    "export": {"status": MUST, "work": MUST},
    "staged": {"slot": MUST},
    "transfer_done": {"status": MUST, "slot": (FREE,)},
    "finish": {"status": MUST, "work": MUST},
    "abort:FINISHED": {"status": MUST, "work": MUST},
    "abort:TRANSFERRING": {"status": MUST, "work": MUST},
    "retire": {"status": MUST, "slot": (FREE,), "kv": (NONE,)},
    # Facts about a request that move no machine.
    "grow": {}, "output": {}, "refuse": {}, "drop": {}, "verdict": {},
    "publish": {}, "evict": {}, "pin": {}, "unpin": {},
}  # fmt: skip
TICKET_TRIGGERS = ("submit_batch", "complete_batch", "fail_batch", "retire_batch")
RUN_TRIGGERS = ("open", "close", "recover")


def public_trigger(trigger: str) -> str:
    """The trigger as the log shows it: `enqueue:DECODE_CODA` is `enqueue`."""
    return trigger.partition(":")[0]
