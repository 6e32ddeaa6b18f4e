"""The joint moves as rows of a log, and the numbers that another revision's file gives them.

A log carries the texts of the moves it uses, so that it can be read without this code. A file
written by another revision keeps its numbers; a new run in it maps ours onto them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rlt_fsm.machines import NULL, public_trigger
from rlt_fsm.moves import MOVES, Edge

from .port import MoveRow


def _columns(edge: Edge) -> tuple[str | None, str | None]:
    """An edge as two columns; the state before submit and after retire is NULL in the log."""
    if edge is None:
        return None, None
    source, dest = edge
    return (None if source == NULL else source), (None if dest == NULL else dest)


MOVE_ROWS: Final[tuple[MoveRow, ...]] = tuple(
    MoveRow(
        number,
        public_trigger(move.trigger),
        *_columns(move.status),
        *_columns(move.work),
        *_columns(move.slot),
        *_columns(move.kv),
    )
    for number, move in enumerate(MOVES)
)


def edges(row: MoveRow) -> list[tuple[str, str | None, str | None]]:
    """The machines that a move moves: (machine, source, dest) in the order status work slot kv."""
    pairs = (
        ("status", row.status_from, row.status_to),
        ("work", row.work_from, row.work_to),
        ("slot", row.slot_from, row.slot_to),
        ("kv", row.kv_from, row.kv_to),
    )
    return [pair for pair in pairs if pair[1] is not None or pair[2] is not None]


def match(known: Sequence[MoveRow]) -> tuple[list[int] | None, list[MoveRow]]:
    """Fit our moves to those a log has: (the log's number of each of ours, rows to add).

    The numbers are None where they are ours already, so that nothing need be mapped.
    """
    numbers = {row[1:]: row.move for row in known}
    next_number = max(numbers.values(), default=-1) + 1
    missing = []
    for row in MOVE_ROWS:
        if row[1:] not in numbers:
            numbers[row[1:]] = next_number
            missing.append(row._replace(move=next_number))
            next_number += 1
    ours = [numbers[row[1:]] for row in MOVE_ROWS]
    return (None if is_identity(ours) else ours), missing


def is_identity(numbers: Iterable[int]) -> bool:
    """Whether each number stands at its own place."""
    return all(place == number for place, number in enumerate(numbers))
