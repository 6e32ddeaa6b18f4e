"""Pictures and tables of the state machines, from `rlt_fsm/machines.py`."""

import inspect
from collections.abc import Callable, Iterable
from typing import Final, get_args

from rlt_fsm import events
from rlt_fsm.machines import (
    JOINT,
    KV,
    NULL,
    PARKED,
    QUEUED,
    REPLAY_ONLY_SUCCESSORS,
    REQUEST_MACHINES,
    SLOT,
    STATUS,
    SUCCESSORS,
    TAKEN,
    TICKET,
    WORK,
    WORK_STATES,
    MachineSpec,
    public_trigger,
)
from rlt_fsm.moves import MOVES
from rlt_fsm.states import OPERATION_OF, WorkKey

from .markdown import Block, code, fenced, table

Edge = tuple[str, str, str]  # trigger, source, dest

# Declared from the start, run by no engine yet; README's picture leaves them out.
NOT_RUN: Final = {"RECEIVING", "TRANSFERRING", "SPECULATIVE"}
_HEAD_OF: Final = {"Admitted": "admit", "Enqueued": "enqueue", "Aborted": "abort"}
_MOVES_OF_ONE_KEY: Final = ((QUEUED, TAKEN), (QUEUED, PARKED), (PARKED, QUEUED))


# ---- pictures --------------------------------------------------------------------------------


def picture(machine: MachineSpec) -> str:
    """A whole machine."""
    return _diagram(_edges(machine), machine["initial"])


def work_by_kind() -> str:
    """The work machine with all keys taken as one: `QUEUED:DECODE_CODA` is `QUEUED:k`."""

    def kind(state: str) -> str:
        prefix, colon, _ = state.partition(":")
        return f"{prefix}:k" if colon else prefix

    return _diagram(_merged(_edges(WORK), kind), WORK["initial"])


def work_by_key() -> str:
    """Which key follows which; a step from TAKEN:j to QUEUED:k is an arrow from j to k."""
    lines = ["stateDiagram-v2"]
    for before, followers in SUCCESSORS.items():
        for after in followers:
            is_replay = after in REPLAY_ONLY_SUCCESSORS.get(before, ())
            lines.append(f"    {before} --> {after}{': replay' if is_replay else ''}")
    return fenced("\n".join(lines), "mermaid")


def compact() -> str:
    """README's picture: a request's status, and inside ACTIVE its work, as far as engines run."""
    fired = {trigger for fact in fact_classes() for trigger in triggers_of(fact)}
    status = [
        edge
        for edge in _edges(STATUS)
        if edge[0] in fired and not NOT_RUN.intersection(edge[1:]) and edge[0] != "reserve"
    ]
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += _arrows((t, _end(s), _end(d)) for t, s, d in status)
    lines.append("    state ACTIVE {")
    lines.append("        direction LR")
    for entry in ("admit:PROMPT_ATOMIC", "admit:PROMPT_PRELUDE"):
        lines.append(f"        [*] --> {entry.partition(':')[2]}")
    for before, followers in SUCCESSORS.items():
        for after in followers:
            is_replay = after in REPLAY_ONLY_SUCCESSORS.get(before, ())
            if not is_replay and not NOT_RUN.intersection((before, after)):
                lines.append(f"        {before} --> {after}")
    return fenced("\n".join([*lines, "    }"]), "mermaid")


def _end(state: str) -> str:
    return "[*]" if state == NULL else state


def _edges(machine: MachineSpec) -> list[Edge]:
    return [(t["trigger"], t["source"], t["dest"]) for t in machine["transitions"]]


def _merged(edges: Iterable[Edge], name: Callable[[str], str]) -> list[Edge]:
    return [(trigger, name(source), name(dest)) for trigger, source, dest in edges]


def _diagram(edges: Iterable[Edge], initial: str) -> str:
    edges = list(edges)
    states = dict.fromkeys(state for _, *ends in edges for state in ends)
    names = [f'    state "{state}" as {_id(state)}' for state in states if _id(state) != state]
    start = [f"    [*] --> {_id(initial)}"]
    return fenced("\n".join(["stateDiagram-v2", *names, *start, *_arrows(edges)]), "mermaid")


def _arrows(edges: Iterable[Edge]) -> list[str]:
    """One arrow for each pair of states; its label lists the triggers as the log shows them."""
    triggers: dict[tuple[str, str], dict[str, None]] = {}
    for trigger, source, dest in edges:
        triggers.setdefault((source, dest), {})[public_trigger(trigger)] = None
    return [
        f"    {_id(source)} --> {_id(dest)}: {', '.join(labels)}"
        for (source, dest), labels in triggers.items()
    ]


def _id(state: str) -> str:
    return state.replace(":", "_")


# ---- tables ----------------------------------------------------------------------------------


def joint_table() -> str:
    """Every trigger, the machines that it fires, and how many concrete moves that makes."""
    head = ["trigger", "status", "work", "slot", "kv", "moves", "told by"]
    fact_of = {trigger: fact for fact in fact_classes() for trigger in triggers_of(fact)}
    rows = []
    for trigger, fires in JOINT.items():
        cells = [
            _moves_text(machine, trigger, fires[machine["name"]])
            if machine["name"] in fires
            else ""
            for machine in REQUEST_MACHINES
        ]
        count = sum(move.trigger == trigger for move in MOVES)
        fact = code(fact_of[trigger].__name__) if trigger in fact_of else "no event yet"
        rows.append([code(trigger), *cells, count, fact])
    return table(head, rows, numbers=[5])


def _moves_text(machine: MachineSpec, trigger: str, stays: tuple[str, ...]) -> str:
    pairs = [(source, dest) for t, source, dest in _edges(machine) if t == trigger]
    text = _of_one_key(pairs) or "; ".join(
        f"{_sources(pairs, dest)} → {dest}" for dest in dict.fromkeys(d for _, d in pairs)
    )
    return text + (f", or stays ({', '.join(stays)})" if stays else "")


def _sources(pairs: list[tuple[str, str]], dest: str) -> str:
    sources = [source for source, d in pairs if d == dest]
    return "any" if sources == WORK_STATES else ", ".join(sources)


def _of_one_key(pairs: list[tuple[str, str]]) -> str | None:
    for before, after in _MOVES_OF_ONE_KEY:
        if pairs == [(before[key], after[key]) for key in WorkKey]:
            prefixes = (
                states[WorkKey.PROMPT_ATOMIC].partition(":")[0] for states in (before, after)
            )
            return " → ".join(f"{prefix}:k" for prefix in prefixes)
    return None


def operations() -> str:
    """Work keys, the operation that serves each, and what may follow."""
    rows = []
    for key in WorkKey:
        replay_only = REPLAY_ONLY_SUCCESSORS.get(key, ())
        followers = [
            f"{code(after)}{' (replay)' if after in replay_only else ''}"
            for after in SUCCESSORS[key]
        ]
        rows.append([code(key), OPERATION_OF[key], ", ".join(followers)])
    return table(["work key", "operation", "may be followed by"], rows)


def fact_classes(union: object = events.Fact) -> list[type]:
    """The classes of one of the unions of `rlt_fsm/events.py`."""
    return list(get_args(union))


def triggers_of(fact: type) -> list[str]:
    """The qualified triggers of a fact; where its destination names it, there are several."""
    trigger = inspect.getattr_static(fact, "trigger")
    if isinstance(trigger, str):
        return [trigger]
    head = _HEAD_OF[fact.__name__]
    return [name for name in JOINT if public_trigger(name) == head]


BLOCKS: dict[str, Block] = {
    "state-picture": compact,
    "machine-status": lambda: picture(STATUS),
    "machine-work-kinds": work_by_kind,
    "machine-work-keys": work_by_key,
    "machine-work": lambda: picture(WORK),
    "machine-slot": lambda: picture(SLOT),
    "machine-kv": lambda: picture(KV),
    "machine-ticket": lambda: picture(TICKET),
    "joint-table": joint_table,
    "work-keys": operations,
}
