"""Where two runs part: the place, the state of both sides before and after, and what each chose."""

from itertools import takewhile, zip_longest
from typing import Final, Literal

import msgspec

from rlt_fsm.errors import LogError

from ..explain import explain
from ..reader import SEQ, STEP, Event
from ..replay import Replay
from ..timeline import tell
from ..words import shown
from .account import Account, Given, Turn
from .choice import Choice, choice
from .first_event import EventPair
from .side import Side

Level = Literal["schedule", "outputs", "events"]
DECISIONS: Final = frozenset(
    {"admit", "resume", "activate", "reserve", "grow", "evict", "select", "verdict", "submit_batch"}
    | {"yield", "offload", "offload_resident", "rewind"}
)


class There(msgspec.Struct, frozen=True, kw_only=True):
    """One side at the place of a difference.

    `what` is what it did there, in words; `before` and `after` are its states (`RunState.as_dict`):
    before the event at `seq` (on level `schedule`: before the step's first decision) and after the
    step. `why` says why the request concerned ran or not. Both are empty where nobody asked.
    """

    seq: int
    step: int
    what: str
    before: dict[str, object]
    after: dict[str, object]
    chose: Choice
    why: list[str]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference on one level; `request` is whom it concerns, if one."""

    level: Level
    step: int
    request: str | None
    a: There
    b: There


class OutputPair(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request's outputs part: at output `idx`, or in how it ended (idx None)."""

    request: str
    idx: int | None
    a: Given | None
    b: Given | None
    end_a: str | None
    end_b: str | None
    step: int


# ---- on the three levels -----------------------------------------------------------------------


def of_events(a: Side, b: Side, pair: EventPair, *, has_states: bool = True) -> Difference:
    """The difference that begins with two events; states take as long as to read up to there."""
    steps = [event[STEP] for event in pair if event is not None]
    step = min(steps)
    subject = None if pair.a is None else a.name(pair.a)
    if subject is None and pair.b is not None:
        subject = b.name(pair.b)
    return Difference(
        level="events",
        step=step,
        request=subject,
        a=_there(
            a, _seq(a, pair.a), step, _event_in_words(a, pair.a), subject, has_states=has_states
        ),
        b=_there(
            b, _seq(b, pair.b), step, _event_in_words(b, pair.b), subject, has_states=has_states
        ),
    )


def of_schedule(a: Side, b: Side, turn_a: Turn | None, turn_b: Turn | None) -> Difference:
    """The difference between two batches, or between one and none."""
    step = min(turn.step for turn in (turn_a, turn_b) if turn is not None)
    here_a = turn_a if turn_a is not None and turn_a.step == step else None
    here_b = turn_b if turn_b is not None and turn_b.step == step else None
    subject = _first_other_entry(a, b, step) or _first_other_row(here_a, here_b)
    return Difference(
        level="schedule",
        step=step,
        request=subject,
        a=_there(a, None, step, _turn_in_words(here_a), subject),
        b=_there(b, None, step, _turn_in_words(here_b), subject),
    )


def of_outputs(a: Side, b: Side, pair: OutputPair) -> Difference:
    """The difference between two outputs, or between two ends of a request."""
    return Difference(
        level="outputs",
        step=pair.step,
        request=pair.request,
        a=_output_there(a, pair, pair.a, pair.end_a),
        b=_output_there(b, pair, pair.b, pair.end_b),
    )


def first_output(
    a: Account, b: Account, *, is_a_cut: bool = False, is_b_cut: bool = False
) -> OutputPair | None:
    """The earliest place, by step, at which a request's outputs or its end differ.

    What a side that is cut off lacks is no difference.
    """
    found: list[tuple[int, int, str, OutputPair]] = []
    for name in dict.fromkeys([*a.outputs, *a.ends, *b.outputs, *b.ends]):
        pair = _parted(name, a, b)
        if pair is None:
            continue
        lacks_a, lacks_b = (
            _lacks(pair.idx, pair.a, pair.end_a),
            _lacks(pair.idx, pair.b, pair.end_b),
        )
        if not (is_a_cut and lacks_a) and not (is_b_cut and lacks_b):
            seqs = [given.seq for given in (pair.a, pair.b) if given is not None]
            found.append((pair.step, min(seqs, default=0), name, pair))
    return min(found)[-1] if found else None


def _lacks(idx: int | None, given: Given | None, end: str | None) -> bool:
    return end is None and (idx is None or given is None)


def _parted(name: str, a: Account, b: Account) -> OutputPair | None:
    """Where the outputs of one request, or else its ends, differ."""
    ones, others = a.outputs.get(name, []), b.outputs.get(name, [])
    end_a, end_b = a.ends.get(name), b.ends.get(name)
    reason_a, reason_b = None if end_a is None else end_a[0], None if end_b is None else end_b[0]
    for idx, (one, other) in enumerate(zip_longest(ones, others)):
        if one is None or other is None or one[:2] != other[:2]:
            step = min(given.step for given in (one, other) if given is not None)
            return OutputPair(
                request=name, idx=idx, a=one, b=other, end_a=reason_a, end_b=reason_b, step=step
            )
    if reason_a == reason_b:
        return None
    step = min(end[1] for end in (end_a, end_b) if end is not None)
    return OutputPair(
        request=name, idx=None, a=None, b=None, end_a=reason_a, end_b=reason_b, step=step
    )


# ---- one side ------------------------------------------------------------------------------------


def _there(
    side: Side,
    seq: int | None,
    step: int,
    what: str,
    subject: str | None,
    *,
    has_states: bool = True,
) -> There:
    """A side around a step; `seq` None: before what it decided there."""
    replay = side.states
    is_over = step > replay.last_step
    here = min(step, replay.last_step)
    first_seq = replay.last_seq_of(here - 1) + 1 if here else 1
    last_seq = replay.last_seq_of(here)
    if seq is None:
        seq = last_seq + 1 if is_over else _first_decision(side, first_seq, last_seq)
    before = after = None
    if has_states:
        before, after = replay.at(seq=seq - 1), replay.at(seq=last_seq)
    return There(
        seq=seq,
        step=step,
        what=what,
        before={} if before is None else before.as_dict(),
        after={} if after is None else after.as_dict(),
        chose=choice(side, step, first_seq, after),
        why=_why(replay, subject, step) if has_states else [],
    )


def _first_decision(side: Side, first_seq: int, last_seq: int) -> int:
    """Where a step's arrivals end and what the engine decides begins."""
    for event in side.events(first_seq - 1):
        if event[SEQ] > last_seq:
            break
        if side.move(event).trigger in DECISIONS:
            return event[SEQ]
    return last_seq + 1


def _why(replay: Replay, subject: str | None, step: int) -> list[str]:
    """What `explain` says of the request concerned in that step, where the run has both."""
    if subject is None or step > replay.last_step:
        return []
    try:
        return explain(replay, subject, step).sentences
    except LogError:  # it never came here
        return []


def _seq(side: Side, event: Event | None) -> int:
    return side.last_seq + 1 if event is None else event[SEQ]


# ---- in words ------------------------------------------------------------------------------------


def _event_in_words(side: Side, event: Event | None) -> str:
    if event is None:
        return "has ended"
    move, name = side.move(event), side.name(event)
    if name is None:
        reason = f" ({event[8]})" if event[8] else ""
        return f"{move.trigger}{reason}"
    row = side.run.requests[event[4]]
    entry = tell(side.run, row, [event], last_step=event[STEP]).entries[0]
    return f"{shown(name)}: {entry.what}"


def _turn_in_words(turn: Turn | None) -> str:
    if turn is None:
        return "no batch"
    by_work: dict[str, list[str]] = {}
    for row in turn.rows:
        tokens = f" ({row.token_count} tokens)" if row.token_count > 1 else ""
        by_work.setdefault(row.work, []).append(shown(row.request) + tokens)
    return "; ".join(f"{work}: {', '.join(names)}" for work, names in by_work.items())


def _first_other_entry(a: Side, b: Side, step: int) -> str | None:
    """A request that one side let in in a step, and the other did not."""
    ones, others = _let_in(a, step), _let_in(b, step)
    for names, there in ((ones, others), (others, ones)):
        for name in names:
            if name not in there:
                return name
    return None


def _let_in(side: Side, step: int) -> list[str]:
    replay = side.states
    if step > replay.last_step:
        return []
    first_seq = replay.last_seq_of(step - 1) + 1 if step else 1
    events = takewhile(lambda event: event[STEP] == step, side.events(first_seq - 1))
    return [side.name(e) or "?" for e in events if side.move(e).trigger in ("admit", "resume")]


def _first_other_row(a: Turn | None, b: Turn | None) -> str | None:
    """A request that is in one batch and not in the other, or whose rows differ."""
    ones, others = () if a is None else a.rows, () if b is None else b.rows
    for rows, there in ((ones, others), (others, ones)):
        names = {row.request for row in there}
        for row in rows:
            if row.request not in names:
                return row.request
    for one, other in zip(ones, others, strict=False):
        if one != other:
            return one.request
    return None


def _output_there(side: Side, pair: OutputPair, given: Given | None, end: str | None) -> There:
    if pair.idx is None:
        what = f"{shown(pair.request)} " + ("has not ended" if end is None else f"ended: {end}")
    elif given is None:
        what = f"{shown(pair.request)} has no output {pair.idx}"
        what += "" if end is None else f" ({end})"
    else:
        what = (
            f"{shown(pair.request)} output {pair.idx}: token {given.token_id}, "
            f"exit depth {given.exit_depth}, in step {given.step}"
        )
    step = pair.step if given is None else given.step
    return _there(side, None if given is None else given.seq, step, what, pair.request)
