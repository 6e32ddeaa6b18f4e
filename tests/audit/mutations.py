"""Single random corruptions of real logs, re-sealed: what the mutation run and its sample draw.

Every scene is a kind of run; a seed draws the run, an event of it, and what is wrong with it. Left
alone is what no invariant speaks of: times, reasons, token ids and log-probabilities are what they
are told to be, since no other record of them exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from random_runs import random_run
from reseal import Event, Tampered

from rlt_fsm import EventLog

SCENES = ("sync", "preempting", "split", "mixed")  # and "async", of which more goes unnoticed
CELLS = ("ticket", "ref", "blocks", "a", "b", "c", "d", "e")
# What other records do not tell: nothing in a log can contradict them.
ITS_OWN_WORD = {("output", "b"), ("output", "d")}


class Corrupted(NamedTuple):
    """A log with one thing wrong in step `step`."""

    path: Path
    what: str
    step: int


def _is_of(scene: str, log: Tampered) -> bool:
    config, triggers = log.config, {log.trigger(event) for event in log.events}
    match scene:
        case "preempting":
            return bool(triggers & {"yield", "offload", "offload_resident", "rewind"})
        case "split":
            return not config["execution"]["atomic_prefill"]
        case "mixed":
            return config["scheduler"]["mode"] == "mixed"
        case _:
            return True


def _real_log(scene: str, seed: int, folder: Path) -> Tampered:
    """The seed's run of this kind."""
    for attempt in range(200):
        number = seed * 200 + attempt
        path = folder / f"{scene}-{number}.db"
        with EventLog.open(path) as log:
            ran = random_run(
                number, whole_scheduler=scene != "sync", is_async=scene == "async", log=log
            )
        if ran is not None:
            tampered = Tampered(path)
            if len(tampered.events) > 60 and _is_of(scene, tampered):
                return tampered
        path.unlink()
    raise AssertionError(f"no run of 200 is {scene}")


def corrupted(scene: str, seed: int, folder: Path) -> Corrupted:
    """The seed's corruption of the seed's run."""
    log, random = _real_log(scene, seed, folder), Random(seed)
    while True:
        event = random.choice(log.events[1:-1])
        step, seq, trigger = event.step, event.seq, log.trigger(event)
        what = random.choice(KINDS)(log, event, random)
        if what is not None:
            return Corrupted(log.seal(), f"seq {seq}, `{trigger}`: {what}", step)


# ---- kinds: each says what it did, or None where it can do nothing -------------------------------


def _drop(log: Tampered, event: Event, random: Random) -> str | None:
    del random
    if log.trigger(event) in ("verdict", "publish"):
        return None  # an opinion, an offer: nobody is bound to tell them
    log.drop(event)
    return "left out"


def _twice(log: Tampered, event: Event, random: Random) -> str | None:
    del random
    if log.trigger(event) == "verdict":
        return None
    log.duplicate(event)
    return "twice"


def _late(log: Tampered, event: Event, random: Random) -> str | None:
    """Moved behind a later event, of the same request or of its ticket."""
    place = log.events.index(event)
    later = [
        other
        for other in log.events[place + 1 : place + 40]
        if other.ref == event.ref or other.ticket == event.ticket
    ]
    kin = [o for o in later if {log.trigger(o), log.trigger(event)} != {log.trigger(event)}]
    if not kin or "verdict" in (log.trigger(kin[0]), log.trigger(event)):
        return None
    behind = random.choice(kin[:2])
    log.events.remove(event)
    event.step = behind.step
    log.insert_after(behind, event)
    return f"moved behind seq {behind.seq}"


def _cell(log: Tampered, event: Event, random: Random) -> str | None:
    told = [name for name in CELLS if isinstance(getattr(event, name), int)]
    told = [name for name in told if (log.trigger(event), name) not in ITS_OWN_WORD]
    if not told:
        return None
    name = random.choice(told)
    was = getattr(event, name)
    is_ = 1 - was if name == "e" else was + random.choice([-1, 1])
    if name == "ref":
        is_ = (was + 1) % len(log.requests)
    if is_ == was or is_ < 0:
        return None
    setattr(event, name, is_)
    return f"{name} {was} → {is_}"


def _missing(log: Tampered, event: Event, random: Random) -> str | None:
    told = [name for name in CELLS if getattr(event, name) is not None and name != "d"]
    if not told or log.trigger(event) == "verdict":
        return None
    name = random.choice(told)
    setattr(event, name, None)
    return f"{name} is missing"


def _cause(log: Tampered, event: Event, random: Random) -> str | None:
    if event.cause is None or log.trigger(event) in ("verdict", "finish", "enqueue"):
        return None
    was, event.cause = event.cause, max(1, event.cause - random.choice([1, 2, 3]))
    return None if was == event.cause else f"cause {was} → {event.cause}"


def _move(log: Tampered, event: Event, random: Random) -> str | None:
    """Another move that the log knows, of the same trigger if there is one."""
    own = log.trigger(event)
    same = [n for n, columns in log.moves.items() if columns[0] == own and n != event.move]
    used = sorted({other.move for other in log.events} - {event.move})
    was = event.move
    event.move = random.choice(same or used)
    return f"move {was} → {event.move}"


def _data(log: Tampered, event: Event, random: Random) -> str | None:
    """A number, a name or a list in its JSON."""
    del log
    data = event.data
    names = [name for name in data if _other(data[name]) is not None]
    names = [name for name in names if name not in ("prompt_token_ids", "config", "model")]
    if not names:
        return None
    name = random.choice(names)
    was, data[name] = data[name], _other(data[name])
    event.extra = json.dumps(data)
    return f"{name} {was!r:.40} → {data[name]!r:.40}"


def _other(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case [_, *rest]:
            return rest
        case str():
            return {"stop": "length", "length": "stop"}.get(value, f"{value}x")
        case _:
            return None


def _another_step(log: Tampered, event: Event, random: Random) -> str | None:
    del random
    after = log.events.index(event) + 1
    if log.events[after].step == event.step:
        return None  # steps never fall: only the last of a step can be the next one's first
    event.step = log.events[after].step
    return f"belongs to step {event.step}"


def _swapped(log: Tampered, event: Event, random: Random) -> str | None:
    """The states before and after, exchanged."""
    del random
    columns = log.moves[event.move]
    edges = {
        name: (columns[2 + 2 * place], columns[1 + 2 * place])
        for place, name in enumerate(("status", "work", "slot", "kv"))
        if columns[1 + 2 * place] is not None or columns[2 + 2 * place] is not None
    }
    if not edges:
        return None
    event.move = log.move(columns[0], **edges)
    return "its states are exchanged"


def _copy_of_another(log: Tampered, event: Event, random: Random) -> str | None:
    """An event of another place is here too."""
    other = random.choice(log.events[1:-1])
    if log.trigger(other) == "verdict":
        return None
    log.insert_after(event, replace(other, step=event.step))
    return f"followed by a copy of seq {other.seq}, `{log.trigger(other)}`"


Kind = Callable[[Tampered, Event, Random], "str | None"]
KINDS: tuple[Kind, ...] = (
    _drop, _twice, _late, _cell, _cell, _cell, _missing, _cause, _move, _data, _data,
    _another_step, _swapped, _copy_of_another,
)  # fmt: skip
