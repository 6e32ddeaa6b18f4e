"""Puts a run's events and the rows of its steps together: one `Step` after the other.

Nothing is judged here, but what belongs to which step and whether more of it may come.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from rlt_fsm.log.port import StepRow

from .reader import MOVE, SEQ, STEP, Event, RunLog
from .recount import Step


def whole_run(run: RunLog) -> Iterator[Step]:
    """Every step with events or a row, in order; the last one knows that it is the last."""
    last: Step | None = None
    for step in in_order(run, run.events(), run.steps()):
        if last is not None:
            yield last
        last = step
    if last is not None:
        last.is_last = True
        if is_cut_off(run, last):
            last.row = None
        yield last


def in_order(run: RunLog, events: Iterable[Event], rows: Iterable[StepRow]) -> Iterator[Step]:
    """The steps that these events and rows make; the last may not be all there."""
    last: Step | None = None
    for step in _paired(events, iter(rows)):
        if last is not None:
            last.is_before_recovery = _trigger(run, step.events[:1]) == "recover"
            yield last
        last = step
    if last is not None:
        yield last


def is_whole(run: RunLog, step: Step) -> bool:
    """Whether nothing of the newest step is still to come: it is sealed, or it is the run's end."""
    if step.row is not None:
        return not step.events or step.events[-1][SEQ] >= step.row.last_seq
    return ends_run(run, step)


def ends_run(run: RunLog, step: Step) -> bool:
    """Whether the step's last event is `close`."""
    return _trigger(run, step.events[-1:]) == "close"


def _paired(events: Iterable[Event], rows: Iterator[StepRow]) -> Iterator[Step]:
    row = next(rows, None)
    last_seq = 0
    for number, group in groupby(events, key=itemgetter(STEP)):
        while row is not None and row.step < number:
            yield Step(row.step, [], row)
            row = next(rows, None)
        own = list(group)
        last_seq = own[-1][SEQ]
        if row is not None and row.step == number:
            yield Step(number, own, row)
            row = next(rows, None)
        else:
            yield Step(number, own, None)
    # Rows after the last event: steps without events, not those that were cut off.
    while row is not None and row.last_seq <= last_seq:
        yield Step(row.step, [], row)
        row = next(rows, None)


def is_cut_off(run: RunLog, last: Step) -> bool:
    """Whether the last step's row tells of more events than are there."""
    return (
        last.row is not None
        and last.events != []
        and last.events[-1][SEQ] < last.row.last_seq
        and not ends_run(run, last)
    )


def _trigger(run: RunLog, events: list[Event]) -> str | None:
    move = run.moves.get(events[0][MOVE]) if events else None
    return None if move is None else move.trigger
