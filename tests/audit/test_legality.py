"""The auditor's reading of the declarations, against the compiled table and by example."""

from __future__ import annotations

import pytest

from audit.legality import MACHINE_NAMES, Move, judge, read_move
from rlt_fsm import moves
from rlt_fsm.log.move_rows import MOVE_ROWS


@pytest.mark.parametrize("row", MOVE_ROWS, ids=lambda row: str(row.move))
def test_every_compiled_move_is_declared(row: object) -> None:
    number = row.move  # type: ignore[attr-defined]
    move = read_move(row)  # type: ignore[arg-type]
    assert move.text() == moves.describe(moves.MOVES[number])
    assert judge(move).is_declared


def test_the_states_in_which_machines_may_stay_are_those_of_the_compiled_table() -> None:
    """For each joint state: the compiled table has the move exactly where sources and stays fit."""
    of = (moves.STATUS_OF, moves.WORK_OF, moves.SLOT_OF, moves.KV_OF)
    for number, row in enumerate(MOVE_ROWS):
        move, qualified = read_move(row), moves.MOVES[number].trigger
        if not move.is_of_request:
            continue
        stays = judge(move).stays
        base = moves.TRIGGER_BASE[qualified]
        for joint in range(moves.JOINT_STATES):
            fits = all(
                (edge is None or states[joint] == edge[0])
                and (stay is None or states[joint] in stay)
                for states, edge, stay in zip(of, move.edges, stays, strict=True)
            )
            assert fits == (moves.TABLE[base + joint] == number)


@pytest.mark.parametrize(
    "move",
    [
        Move("enqueue", None, ("TAKEN:DECODE_CODA", "QUEUED:DECODE_RECURRENT"), None, None),
        Move("enqueue", None, None, None, None),
        Move(
            "select", ("WAITING", "ACTIVE"), ("QUEUED:DECODE_CODA", "TAKEN:DECODE_CODA"), None, None
        ),
        Move("finish", ("ACTIVE", "FINISHED"), None, None, None),
        Move("output", None, None, ("HELD", "FREE"), None),
        Move("open", ("NULL", "WAITING"), None, None, None),
        Move("unheard_of", None, None, None, None),
    ],
    ids=str,
)
def test_a_move_that_is_not_declared_is_refused(move: Move) -> None:
    assert not judge(move).is_declared


def test_retire_may_leave_the_slot_alone_only_where_it_is_free() -> None:
    verdict = judge(Move("retire", ("FINISHED", "NULL"), None, None, ("RESIDENT", "NONE")))
    assert verdict.is_declared
    assert dict(zip(MACHINE_NAMES, verdict.stays, strict=True))["slot"] == {"FREE"}
