"""However garbled the rows, an audit ends with a verdict, never with a traceback."""

from __future__ import annotations

from random import Random

import pytest
from reseal import Event, Tampered

import audit

NUMBERS = (None, -1, 0, 1, 7, 2**40)
TEXTS = (
    *(None, "", "{", "[]", "{}", '"x"', '{"take": [1, 1, -5]}', '{"drop": [3]}'),
    *('{"params": 3}', '{"state_row": 99}', '{"take": "all"}'),
)
STATES = (None, "X", "WAITING", "ACTIVE", "TAKEN:DECODE_CODA", "QUEUED:", "HELD")


def _garble_cell(event: Event, random: Random) -> None:
    columns = ("ticket", "ref", "move", "blocks", "cause", "a", "b", "c", "d", "e", "extra", "step")
    column = random.choice(columns)
    value = random.choice(TEXTS if column == "extra" else NUMBERS)
    if column in ("move", "step") and value is None:
        value = 0
    setattr(event, column, 1.5 if column == "d" and random.random() < 0.5 else value)


def _garble(log: Tampered, random: Random) -> None:
    event = random.choice(log.events)
    match random.randrange(8):
        case 0:
            log.drop(event)
        case 1:
            log.duplicate(event)
        case 2:
            log.swap(event, random.choice(log.events))
        case 3:
            log.requests.pop(random.randrange(len(log.requests)))
        case 4:
            step = random.choice(log.steps)
            setattr(
                step, random.choice(["first_seq", "last_seq", "ticket"]), random.randint(0, 200)
            )
        case 5:
            columns = log.moves.get(event.move, ["x"] * 9)
            columns[random.randrange(1, 9)] = random.choice(STATES)
        case _:
            _garble_cell(event, random)


@pytest.mark.parametrize("seed", range(120))
def test_any_garbled_log_gets_a_verdict(tampered: Tampered, seed: int) -> None:
    random = Random(seed)
    for _ in range(random.randint(1, 5)):
        _garble(tampered, random)
    for number, event in enumerate(tampered.events, start=1):
        event.seq = number
    report = audit.verify(tampered.write())
    assert report.verdict in ("findings", "inconclusive")
    assert not report.ok
