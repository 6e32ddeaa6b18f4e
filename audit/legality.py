"""Which moves the declarations of `rlt_fsm.machines` allow, read straight from them.

A move is judged once for each distinct row of a log's move table. The compiled table that the
engine runs on (`rlt_fsm.moves`) is not used here: it is among the things that an audit checks.
"""

from sys import intern
from typing import NamedTuple

from rlt_fsm.log.port import MoveRow
from rlt_fsm.machines import (
    JOINT,
    NULL,
    REQUEST_MACHINES,
    RUN_TRIGGERS,
    TICKET_TRIGGERS,
    MachineSpec,
    public_trigger,
)

MACHINE_NAMES = ("status", "work", "slot", "kv")
Edge = tuple[str, str] | None


class Move(NamedTuple):
    """One move of a log, its states interned; an edge is None where its machine is not moved."""

    trigger: str
    status: Edge
    work: Edge
    slot: Edge
    kv: Edge

    @property
    def edges(self) -> tuple[Edge, Edge, Edge, Edge]:
        """The four edges in the order of MACHINE_NAMES."""
        return self[1:]

    @property
    def is_of_request(self) -> bool:
        """Whether the event names a request (else a ticket, or the run)."""
        return self.trigger not in TICKET_TRIGGERS and self.trigger not in RUN_TRIGGERS

    def text(self) -> str:
        """The canonical text, e.g. `select||QUEUED:DECODE_CODA>TAKEN:DECODE_CODA||`."""
        edges = ("" if edge is None else f"{edge[0]}>{edge[1]}" for edge in self.edges)
        return "|".join((self.trigger, *edges))


class Verdict(NamedTuple):
    """Whether a move is declared, and in which states a machine that it leaves alone must be.

    `stays[i]` belongs to MACHINE_NAMES[i]; None: any state will do.
    """

    is_declared: bool
    stays: tuple[frozenset[str] | None, ...]


def read_move(row: MoveRow) -> Move:
    """A row of the log's move table; a NULL on one side only is the status NULL."""
    columns = row[2:]
    edges = (_edge(columns[2 * i], columns[2 * i + 1]) for i in range(len(MACHINE_NAMES)))
    return Move(intern(row[1]), *edges)


def _edge(source: str | None, dest: str | None) -> Edge:
    if source is None and dest is None:
        return None
    return intern(source or NULL), intern(dest or NULL)


def judge(move: Move) -> Verdict:
    """Hold a move against the declarations."""
    if not move.is_of_request:
        return Verdict(is_declared=move.edges == (None,) * 4, stays=(None,) * 4)
    declared = [
        stays
        for trigger in JOINT
        if public_trigger(trigger) == move.trigger
        and (stays := _stays_if_declared(trigger, move)) is not None
    ]
    if not declared:
        return Verdict(is_declared=False, stays=(None,) * 4)
    # Declarations of one public trigger differ in an edge (abort:FINISHED, abort:TRANSFERRING).
    assert len(declared) == 1, f"{move.text()} matches {len(declared)} declarations"
    return Verdict(is_declared=True, stays=declared[0])


def _stays_if_declared(trigger: str, move: Move) -> tuple[frozenset[str] | None, ...] | None:
    """What the machines left alone require if `trigger` declares the move, else None."""
    stays: list[frozenset[str] | None] = []
    for machine, edge in zip(REQUEST_MACHINES, move.edges, strict=True):
        may_stay_in = JOINT[trigger].get(machine["name"])  # None: the trigger does not fire it
        if edge is None:
            if may_stay_in == ():  # it must move
                return None
            stays.append(None if may_stay_in is None else frozenset(may_stay_in))
            continue
        if may_stay_in is None or not _has_edge(machine, trigger, edge):
            return None
        stays.append(None)
    return tuple(stays)


def _has_edge(machine: MachineSpec, trigger: str, edge: tuple[str, str]) -> bool:
    return any(
        t["trigger"] == trigger and (t["source"], t["dest"]) == edge for t in machine["transitions"]
    )
