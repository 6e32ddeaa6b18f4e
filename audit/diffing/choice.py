"""What an engine chose in one step, with the reasons that it recorded."""

from itertools import takewhile

import msgspec

from ..facts import BatchData, PreemptionData, decode
from ..fold import UNREADABLE
from ..reader import EXTRA, REASON, STEP, TICKET, B, C, D, E, Event
from ..run_state import RunState
from ..words import BATCHES, VERDICTS, in_words
from .account import TurnRow
from .side import Side


class Preempted(msgspec.Struct, frozen=True, kw_only=True):
    """Who gave up what, and for whom; `how` is the trigger, `reason` a rewind's."""

    request: str
    how: str
    for_whom: str | None
    reason: str | None


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that stands at the end of the step: the recorded reason, and in words."""

    request: str
    reason: str
    because: str
    since_step: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A step's batch (its works, rows and reason) and what was decided for it.

    `reason` is as recorded, `because` says it in words; both are None where there was no batch.
    """

    step: int
    ticket: int | None
    works: tuple[str, ...]
    rows: list[TurnRow]
    tokens: int
    reason: str | None
    because: str | None
    admitted: list[str]
    resumed: list[str]
    preempted: list[Preempted]
    passed_over: list[PassedOver]


def choice(side: Side, step: int, first_seq: int, after: RunState | None) -> Choice:
    """What a side chose in a step; `first_seq` is its first event's, `after` the state after it,
    without which nobody is known to have been passed over.
    """
    events = list(takewhile(lambda event: event[STEP] == step, side.events(first_seq - 1)))
    triggers = [side.move(event).trigger for event in events]

    def named(*wanted: str) -> list[str]:
        return [
            side.name(event) or "?"
            for event, trigger in zip(events, triggers, strict=True)
            if trigger in wanted
        ]

    rows = [_row(side, e) for e, trigger in zip(events, triggers, strict=True)
            if trigger == "select"]  # fmt: skip
    batch = next((e for e, t in zip(events, triggers, strict=True) if t == "submit_batch"), None)
    works, tokens = _works(batch)
    return Choice(
        step=step,
        ticket=None if batch is None else batch[TICKET],
        works=works,
        rows=rows,
        tokens=tokens,
        reason=None if batch is None else batch[REASON],
        because=None if batch is None else in_words(batch[REASON], BATCHES),
        admitted=named("admit"),
        resumed=named("resume"),
        preempted=[
            _preempted(side, event)
            for event, trigger in zip(events, triggers, strict=True)
            if trigger in ("yield", "offload", "offload_resident", "rewind")
        ],
        passed_over=[] if after is None else _passed_over(after),
    )


def _row(side: Side, event: Event) -> TurnRow:
    work = side.move(event).work
    key = "" if work is None else work[1].partition(":")[2]
    depth = event[D]
    assert depth is None or isinstance(depth, int)
    return TurnRow(side.name(event) or "?", key, event[B], event[C], depth, bool(event[E]))


def _works(batch: Event | None) -> tuple[tuple[str, ...], int]:
    if batch is None:
        return (), 0
    try:
        data = decode(batch[EXTRA], BatchData)
    except UNREADABLE:
        return (), 0
    return tuple(sorted(data.works)), data.tokens


def _preempted(side: Side, event: Event) -> Preempted:
    try:
        for_whom = decode(event[EXTRA], PreemptionData).for_whom
    except UNREADABLE:
        for_whom = None
    return Preempted(
        request=side.name(event) or "?",
        how=side.move(event).trigger,
        for_whom=None if for_whom is None else for_whom.removesuffix("#1"),
        reason=event[REASON],
    )


def _passed_over(state: RunState) -> list[PassedOver]:
    verdicts = [
        (request.verdict, request) for request in state.requests.values() if request.verdict
    ]
    return [
        PassedOver(
            request=request.name,
            reason=verdict.reason,
            because=in_words(verdict.reason, VERDICTS),
            since_step=verdict.step,
        )
        for verdict, request in sorted(verdicts, key=lambda pair: pair[0].seq)
    ]
