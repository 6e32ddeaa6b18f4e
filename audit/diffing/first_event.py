"""The first event in which two runs differ: by their digest chains, then event by event.

A step's digest stands for everything up to it, so the last step up to which two runs agree is found
by binary search, whatever their length. What comes after it is compared row by row. Logs without
digests, or with different configurations (which their first event tells), are read from the start.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from ..reader import SEQ, Event
from .side import Side, same_event

Tell = Callable[[int], None]  # how many events were read


class EventPair(NamedTuple):
    """The events at one place of both runs; None where a run has ended."""

    a: Event | None
    b: Event | None


def agreed_seq(a: Side, b: Side) -> int:
    """The seq up to which the digests of both runs vouch for each other; 0 where for nothing."""
    low, high = 0, min(a.last_step, b.last_step) + 1  # agree before `low`, disagree from `high` on
    seq = 0
    while low < high:
        middle = (low + high) // 2
        row, other = a.first_step_row(middle), b.first_step_row(middle)
        is_same = (
            row is not None
            and other is not None
            and (row.step, row.last_seq, row.digest) == (other.step, other.last_seq, other.digest)
            and bool(row.digest)  # another engine's log may have none
        )
        if is_same:
            assert row is not None
            low, seq = row.step + 1, row.last_seq
        else:
            high = middle
    return seq


def first_event(
    a: Side,
    b: Side,
    *,
    after_seq: int = 0,
    skip_open: bool = False,
    tell: Tell | None = None,
) -> EventPair | None:
    """The first pair of events after `after_seq` that differ; None where all are the same.

    `skip_open`: pass over the first event, which tells the configuration.
    """
    read = 0
    for event_a, event_b in zip_longest(a.events(after_seq), b.events(after_seq)):
        read += 2
        if tell is not None and not read % 4096:
            tell(read)
        if event_a is None or event_b is None:
            return EventPair(event_a, event_b)
        if not same_event(a, b, event_a, event_b) and not (skip_open and event_a[SEQ] == 1):
            return EventPair(event_a, event_b)
    return None
