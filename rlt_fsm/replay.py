"""Folding a recorded run again: the state that a log tells of. Reads a log, decides nothing.

An engine's state is the fold of its log, so the fold of what was stored must equal the live state;
what goes on from a log (recovery, replays) starts with it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .apply import apply
from .codec import decode
from .errors import LogError
from .events import Fact, RunOpened
from .log.move_rows import MOVE_ROWS
from .log.port import EventRow, EventStore, LogReader
from .state import EngineState


class Recorded(NamedTuple):
    """One fact of a log, and where it stands there."""

    fact: Fact
    seq: int
    step: int
    ticket: int | None


def fold(log: EventStore, run_id: int) -> EngineState:
    """The state after everything that is committed of a run.

    Raises:
        LogError: the run is not there, does not begin with its configuration, or holds a move that
            this version does not know.
        IllegalTransition: an event's move is not declared from the state before it.
    """
    facts = recorded(log.reader(), run_id)
    first = next(facts, None)
    if first is None or not isinstance(first.fact, RunOpened):
        raise LogError(f"{log.name}: run {run_id} does not begin with `open`")
    state = EngineState(first.fact.config, first.fact.model)
    apply(state, first.fact, first.seq, first.ticket)
    for fact, seq, _, ticket in facts:
        apply(state, fact, seq, ticket)
    return state


def recorded(reader: LogReader, run_id: int) -> Iterator[Recorded]:
    """The committed facts of a run, in order.

    A file keeps the move numbers of whoever wrote it first: they are matched by their texts.
    """
    cells = reader.events(run_id)  # bounds what is read; what it refers to is there already
    names = {row[0]: (row[1], row[2]) for row in reader.requests(run_id)}
    refs = {f"{request_id}#{generation}": ref for ref, (request_id, generation) in names.items()}
    numbers = our_moves(reader, run_id)
    for values in cells:
        row = EventRow(*values)
        move = numbers.get(row.move)
        if move is None:
            raise LogError(f"run {run_id} seq {row.seq}: this version has no such move")
        request = ("", 0) if row.ref is None else names[row.ref]
        fact = decode(row._replace(move=move), request, refs)
        yield Recorded(fact, row.seq, row.step, row.ticket)


def our_moves(reader: LogReader, run_id: int) -> dict[int, int | None]:
    """The log's number of each move → ours; None for a move that this version does not know."""
    ours = {row[1:]: row.move for row in MOVE_ROWS}
    return {row.move: ours.get(row[1:]) for row in reader.moves(run_id)}
