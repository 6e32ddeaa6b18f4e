"""The digest chain: what goes in, what stays out."""

from hashlib import sha256

import msgspec
import pytest
from log_rows import MOVE_TEXTS, REQUESTS, Script, grow_events, move

from rlt_fsm.log.digest import FIRST_DIGEST, move_texts, request_names, step_digest
from rlt_fsm.log.move_rows import MOVE_ROWS
from rlt_fsm.log.port import RequestRow
from rlt_fsm.moves import MOVES, describe

NAMES = request_names(REQUESTS)
SELECT = "select||QUEUED:DECODE_CODA>TAKEN:DECODE_CODA||"


def _events():
    script = Script()
    script.add(SELECT, step=5, ticket=3, ref=2, blocks=12, cause=4, columns=(0, 9, 1, None, 0))
    script.add("submit_batch", step=5, ticket=3, reason="refill", extra='{"rows":1}')
    script.add("output", step=5, ticket=3, ref=2, blocks=12, cause=2, columns=(0, 65, 4, -2.0))
    return script.events


def test_a_step_is_hashed_column_by_column_after_the_previous_digest():
    columns = [
        5,
        [1, 2, 3],
        [3, 3, 3],
        ["a#2", None, "a#2"],
        [SELECT, "submit_batch||||", "output||||"],
        [12, None, 12],
        [4, None, 2],
        [None, "refill", None],
        [0, None, 0],
        [9, None, 65],
        [1, None, 4],
        [None, None, -2.0],
        [0, None, None],
        [None, '{"rows":1}', None],
    ]
    previous = b"\x05" * 32
    expected = sha256(previous + msgspec.msgpack.encode(columns)).digest()
    assert step_digest(previous, 5, _events(), NAMES, MOVE_TEXTS) == expected


def test_the_digest_of_a_known_step_never_changes():
    digest = step_digest(FIRST_DIGEST, 5, _events(), NAMES, MOVE_TEXTS)
    assert digest.hex() == "9b5344d42300b4790f253e49703c2b6e590c1eb0d7064746e87e1798ebedd093"


def test_a_step_without_events_still_moves_the_chain():
    first = step_digest(FIRST_DIGEST, 1, [], NAMES, MOVE_TEXTS)
    packed = msgspec.msgpack.encode([1, *[[]] * 13])
    assert first == sha256(bytes(32) + packed).digest()
    assert first != step_digest(FIRST_DIGEST, 2, [], NAMES, MOVE_TEXTS)


def test_the_clock_stays_out():
    later = [row._replace(t_ns=row.t_ns + 1) for row in _events()]
    assert step_digest(FIRST_DIGEST, 5, later, NAMES, MOVE_TEXTS) == step_digest(
        FIRST_DIGEST, 5, _events(), NAMES, MOVE_TEXTS
    )


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 9},
        {"ticket": 4},
        {"ref": 0},
        {"move": move("grow")},
        {"blocks": 11},
        {"cause": 1},
        {"reason": "budget"},
        {"a": 1},
        {"b": 1},
        {"c": 2},
        {"d": -2},
        {"e": 1},
        {"extra": "{}"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_other_column_is_covered(change):
    changed = _events()
    changed[2] = changed[2]._replace(**change)
    assert step_digest(FIRST_DIGEST, 5, changed, NAMES, MOVE_TEXTS) != step_digest(
        FIRST_DIGEST, 5, _events(), NAMES, MOVE_TEXTS
    )


def test_order_previous_digest_and_step_are_covered():
    events = grow_events(1, 3)
    digest = step_digest(FIRST_DIGEST, 5, events, NAMES, MOVE_TEXTS)
    assert digest != step_digest(FIRST_DIGEST, 5, events[::-1], NAMES, MOVE_TEXTS)
    assert digest != step_digest(b"\x01" * 32, 5, events, NAMES, MOVE_TEXTS)
    assert digest != step_digest(FIRST_DIGEST, 6, events, NAMES, MOVE_TEXTS)


def test_the_numbers_of_moves_and_requests_do_not_matter_only_what_they_stand_for():
    renumbered = [
        row._replace(move=row.move + 10, ref=None if row.ref is None else row.ref + 1)
        for row in _events()
    ]
    texts = ["?"] * 10 + MOVE_TEXTS
    assert step_digest(FIRST_DIGEST, 5, renumbered, ["?", *NAMES], texts) == step_digest(
        FIRST_DIGEST, 5, _events(), NAMES, MOVE_TEXTS
    )


def test_texts_made_from_a_log_are_those_of_the_declaration():
    assert move_texts(MOVE_ROWS) == [describe(move) for move in MOVES]
    assert len(set(MOVE_TEXTS)) == len(MOVE_TEXTS)


def test_requests_are_named_by_id_and_generation():
    assert request_names([RequestRow(1, "b", 1), RequestRow(0, "a", 3)]) == ["a#3", "b#1"]
    assert request_names([RequestRow(1, "b", 1)]) == ["?", "b#1"]
    assert request_names([]) == []
