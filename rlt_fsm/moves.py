"""The joint table compiled from `machines.py` for the hot path, and the checks that it is sound.

A request's four machines stand in one small integer, its *joint state*. For every (trigger, joint
state) the table holds the *move*: the number of one concrete set of edges, e.g. `select` with
work QUEUED:DECODE_CODA→TAKEN:DECODE_CODA; -1 where the pair is illegal. A move's effect on the
joint state is one addition. The log stores the move's number and a table of their texts.
"""

from itertools import product
from typing import Final, NamedTuple

from . import machines
from .errors import IllegalTransition
from .machines import JOINT, REQUEST_MACHINES, MachineSpec, public_trigger

Edge = tuple[str, str] | None  # (source, dest), or None: this machine is not moved


class Move(NamedTuple):
    """One concrete joint move; `trigger` is qualified (`enqueue:DECODE_CODA`)."""

    trigger: str
    status: Edge
    work: Edge
    slot: Edge
    kv: Edge


STATUSES = tuple(machines.STATUS["states"])
WORKS = tuple(machines.WORK["states"])
SLOTS = tuple(machines.SLOT["states"])
KVS = tuple(machines.KV["states"])

_STATES = (STATUSES, WORKS, SLOTS, KVS)
_WEIGHTS = (len(WORKS) * len(SLOTS) * len(KVS), len(SLOTS) * len(KVS), len(KVS), 1)
JOINT_STATES: Final = len(STATUSES) * _WEIGHTS[0]


def encode(status: str, work: str, slot: str, kv: str) -> int:
    """The joint state of four machine states."""
    return (
        STATUSES.index(status) * _WEIGHTS[0]
        + WORKS.index(work) * _WEIGHTS[1]
        + SLOTS.index(slot) * _WEIGHTS[2]
        + KVS.index(kv)
    )


# Joint state → the state of one machine, as text.
STATUS_OF: Final = tuple(s for s, _, _, _ in product(*_STATES))
WORK_OF: Final = tuple(w for _, w, _, _ in product(*_STATES))
SLOT_OF: Final = tuple(s for _, _, s, _ in product(*_STATES))
KV_OF: Final = tuple(k for _, _, _, k in product(*_STATES))

INITIAL: Final = encode(*(machine["initial"] for machine in REQUEST_MACHINES))


def _options(machine: MachineSpec, trigger: str) -> list[Edge]:
    """The edges this trigger may take in one machine, `None` when it may stay."""
    states_to_stay = JOINT[trigger].get(machine["name"])
    if states_to_stay is None:  # not fired at all
        return [None]
    edges: list[Edge] = [
        (t["source"], t["dest"]) for t in machine["transitions"] if t["trigger"] == trigger
    ]
    return [*edges, None] if states_to_stay else edges


def _all_moves() -> list[Move]:
    moves = [
        Move(trigger, *edges)
        for trigger in JOINT
        for edges in product(*(_options(machine, trigger) for machine in REQUEST_MACHINES))
    ]
    others = (*machines.TICKET_TRIGGERS, *machines.RUN_TRIGGERS)
    return moves + [Move(trigger, None, None, None, None) for trigger in others]


def _sources(machine: MachineSpec, trigger: str, edge: Edge) -> tuple[str, ...]:
    """The states from which `edge` is taken (for None: those that the trigger leaves alone)."""
    if edge is not None:
        return (edge[0],)
    return JOINT[trigger].get(machine["name"]) or tuple(machine["states"])


MOVES: Final[tuple[Move, ...]] = tuple(_all_moves())
TRIGGERS: Final[tuple[str, ...]] = (*JOINT, *machines.TICKET_TRIGGERS, *machines.RUN_TRIGGERS)
TRIGGER_BASE: Final = {trigger: i * JOINT_STATES for i, trigger in enumerate(TRIGGERS)}
PLAIN_MOVE: Final = {  # triggers that move no machine have one move, legal in every state
    move.trigger: number for number, move in enumerate(MOVES) if move[1:] == (None,) * 4
}


def _compile() -> tuple[list[int], list[int]]:
    table = [-1] * (len(TRIGGERS) * JOINT_STATES)
    change = [0] * len(MOVES)
    for number, move in enumerate(MOVES):
        if move.trigger not in JOINT:
            continue
        for states, weight, edge in zip(_STATES, _WEIGHTS, move[1:], strict=True):
            if edge is not None:
                change[number] += (states.index(edge[1]) - states.index(edge[0])) * weight
        sources = (
            _sources(machine, move.trigger, edge)
            for machine, edge in zip(REQUEST_MACHINES, move[1:], strict=True)
        )
        base = TRIGGER_BASE[move.trigger]
        for status, work, slot, kv in product(*sources):
            cell = base + encode(status, work, slot, kv)
            assert table[cell] == -1, f"{move.trigger} has two moves from one joint state"
            table[cell] = number
    return table, change


TABLE, CHANGE = (
    _compile()
)  # TABLE[TRIGGER_BASE[trigger] + joint] → move; joint' = joint + CHANGE[move]


def fire(joint: int, trigger: str) -> int:
    """The move of `trigger` from a joint state.

    Raises:
        IllegalTransition: the pair is not declared; nothing was changed.
    """
    move = TABLE[TRIGGER_BASE[trigger] + joint]
    if move < 0:
        raise IllegalTransition(
            f"{public_trigger(trigger)} is not declared from status={STATUS_OF[joint]} "
            f"work={WORK_OF[joint]} slot={SLOT_OF[joint]} kv={KV_OF[joint]}"
        )
    return move


def describe(move: Move) -> str:
    """A move's canonical text, e.g. `select||QUEUED:DECODE_CODA>TAKEN:DECODE_CODA||`."""
    edges = ("" if edge is None else f"{edge[0]}>{edge[1]}" for edge in move[1:])
    return "|".join((public_trigger(move.trigger), *edges))
