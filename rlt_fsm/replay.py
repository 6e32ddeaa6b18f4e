"""Folding a recorded run again: the state that a log tells of. Reads a log, decides nothing.

An engine's state is the fold of its log, so the fold of what was stored must equal the live state;
what goes on from a log (recovery, replays) starts with it.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from . import config as configs
from .apply import apply
from .batch import ModelFacts
from .checkpoint import from_json
from .codec import decode
from .errors import ConfigError, LogError
from .events import Fact, RunOpened
from .log.move_rows import MOVE_ROWS
from .log.port import Checkpoint, EventRow, EventStore, LogReader
from .state import EngineState


class Recorded(NamedTuple):
    """One fact of a log, and where it stands there."""

    fact: Fact
    seq: int
    step: int
    ticket: int | None


def fold(log: EventStore, run_id: int, until_seq: int | None = None) -> EngineState:
    """The state after everything that is committed of a run, or after event `until_seq`.

    Raises:
        LogError: the run is not there, does not begin with its configuration, or holds a move that
            this version does not know.
        IllegalTransition: an event's move is not declared from the state before it.
    """
    while True:
        begin = log.reader().checkpoint(run_id)
        try:
            return _fold_from(log, run_id, begin, until_seq)
        except LogError:
            if log.reader().checkpoint(run_id) == begin:
                raise
            # Its beginning was archived while it was read: it begins elsewhere now.


def _fold_from(
    log: EventStore, run_id: int, begin: Checkpoint | None, until_seq: int | None
) -> EngineState:
    facts = recorded(log.reader(), run_id)
    first = next(facts, None)
    if begin is not None:
        if first is not None and first.seq != begin.seq + 1:
            raise LogError(
                f"{log.name}: run {run_id} begins after seq {begin.seq}, but goes on with seq "
                f"{first.seq}"
            )
        rest = facts if first is None else chain([first], facts)
        return _folded(_state_at(log, begin), rest, until_seq)
    if first is None or not isinstance(first.fact, RunOpened):
        raise LogError(f"{log.name}: run {run_id} does not begin with `open`")
    state = EngineState(first.fact.config, first.fact.model)
    apply(state, first.fact, first.seq, first.ticket)
    return _folded(state, facts, until_seq)


def _folded(state: EngineState, facts: Iterator[Recorded], until_seq: int | None) -> EngineState:
    for fact, seq, _, ticket in facts:
        if until_seq is not None and seq > until_seq:
            break
        apply(state, fact, seq, ticket)
    return state


def _state_at(log: EventStore, checkpoint: Checkpoint) -> EngineState:
    """The state at the run's beginning in this log."""
    reader, run_id = log.reader(), checkpoint.run_id
    info = next(info for info in reader.runs() if info.run_id == run_id)
    try:
        config = configs.from_mapping(msgspec.json.decode(info.config))
        model = msgspec.json.decode(info.model, type=ModelFacts)
        state = from_json(checkpoint.engine, config, model)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise LogError(
            f"{log.name}: the checkpoint of run {run_id} cannot be read: {error}"
        ) from error
    for row in reader.requests(run_id):
        if row[0] < state.next_ref:
            state.generations.note(row[1], row[2])
    return state


def recorded(reader: LogReader, run_id: int, after_seq: int = 0) -> Iterator[Recorded]:
    """The committed facts of a run after `after_seq`, in order.

    A file keeps the move numbers of whoever wrote it first: they are matched by their texts.
    """
    # Bounds what is read; what it refers to is there already.
    cells = reader.events(run_id, after_seq)
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
