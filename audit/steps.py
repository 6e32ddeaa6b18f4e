"""Puts a run's events and the rows of its steps together: one `Step` after the other.

Nothing is judged here, but what belongs to which step and whether more of it may come.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from rlt_fsm.log.port import EventColumns, StepRow

from .reader import MOVE, SEQ, STEP, RunLog
from .recount import Step


def whole_run(run: RunLog) -> Iterator[Step]:
    """Every step with events or a row, in order; the last one knows that it is the last."""
    last: Step | None = None
    for step in in_order(run, run.chunks(), run.steps()):
        if last is not None:
            yield last
        last = step
    if last is not None:
        last.is_last = True
        if is_cut_off(run, last):
            last.row = None
        yield last


def in_order(
    run: RunLog, chunks: Iterable[EventColumns], rows: Iterable[StepRow]
) -> Iterator[Step]:
    """The steps that these events and rows make; the last may not be all there."""
    last: Step | None = None
    for step in _paired(_by_step(chunks), iter(rows)):
        if last is not None:
            last.is_before_recovery = _trigger(run, step, 0) == "recover"
            yield last
        last = step
    if last is not None:
        yield last


def is_whole(run: RunLog, step: Step) -> bool:
    """Whether nothing of the newest step is still to come: it is sealed, or it is the run's end."""
    if step.row is not None:
        return step.last_seq is None or step.last_seq >= step.row.last_seq
    return ends_run(run, step)


def ends_run(run: RunLog, step: Step) -> bool:
    """Whether the step's last event is `close`."""
    return _trigger(run, step, -1) == "close"


def _by_step(chunks: Iterable[EventColumns]) -> Iterator[tuple[int, EventColumns]]:
    """(number, columns) of each step, cut wherever the number changes."""
    left: EventColumns = []
    for chunk in chunks:
        columns = [a + b for a, b in zip(left, chunk, strict=True)] if left else chunk
        steps = columns[STEP]
        start = 0
        for number, same in groupby(steps):
            end = start + len(list(same))
            if end < len(steps):
                yield number, [column[start:end] for column in columns]
                start = end
        left = [column[start:] for column in columns] if start else columns
    if left:
        yield left[STEP][0], left


def _paired(steps: Iterable[tuple[int, EventColumns]], rows: Iterator[StepRow]) -> Iterator[Step]:
    row = next(rows, None)
    last_seq = 0
    for number, columns in steps:
        while row is not None and row.step < number:
            yield Step(row.step, [], row)
            row = next(rows, None)
        last_seq = columns[SEQ][-1]
        if row is not None and row.step == number:
            yield Step(number, columns, row)
            row = next(rows, None)
        else:
            yield Step(number, columns, None)
    # Rows after the last event: steps without events, not those that were cut off.
    while row is not None and row.last_seq <= last_seq:
        yield Step(row.step, [], row)
        row = next(rows, None)


def is_cut_off(run: RunLog, last: Step) -> bool:
    """Whether the last step's row tells of more events than are there."""
    return (
        last.row is not None
        and last.last_seq is not None
        and last.last_seq < last.row.last_seq
        and not ends_run(run, last)
    )


def _trigger(run: RunLog, step: Step, place: int) -> str | None:
    moves = step.columns[MOVE]
    move = run.moves.get(moves[place]) if moves else None
    return None if move is None else move.trigger
