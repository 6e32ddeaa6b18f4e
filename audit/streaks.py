"""Events of one kind that follow each other, as columns: what the invariants may judge at one go.

A batch of 256 rows is 256 `select` events that differ in little. A rule that has a `Together` for a
move says of a whole streak either that no event of it breaks the rule, and takes note of them all,
or that it does not know: then every event is shown to every rule, one by one, as ever. The rules
one by one are the reference; a streak only spares them what is as it should be.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from .reader import BLOCKS, CAUSE, REF, SEQ, TICKET, A, B, C, D, E, Event
from .recount import Step

SHORTEST: Final = 6  # events; fewer are as fast one by one


class Streak:
    """Events `start` to `end` of a step, all with the same move, ticket, and a request each."""

    __slots__ = (
        "a", "b", "blocks", "c", "causes", "d", "e", "length", "refs", "seqs", "start",
        "step", "ticket",
    )  # fmt: skip

    def __init__(self, step: Step, start: int, end: int) -> None:
        columns = step.columns
        self.step = step
        self.start = start
        self.length = end - start
        self.refs: list[int] = columns[REF][start:end]
        self.seqs: list[int] = columns[SEQ][start:end]
        self.ticket: int = columns[TICKET][start]
        self.blocks = columns[BLOCKS][start:end]
        self.causes = columns[CAUSE][start:end]
        self.a = columns[A][start:end]
        self.b = columns[B][start:end]
        self.c = columns[C][start:end]
        self.d = columns[D][start:end]
        self.e = columns[E][start:end]

    @property
    def first(self) -> Event:
        """Its first event."""
        return self.step.events(self.start, self.start + 1)[0]


class Together(NamedTuple):
    """What a rule does with a streak. `holds` changes nothing; `note` is called if all hold.

    `holds` may raise what a garbled row raises: it holds only where it returns True.
    """

    holds: Callable[[Streak], bool]
    note: Callable[[Streak], None]


def stretches(moves: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(move, start, end) of the events of a step, cut wherever the move changes."""
    start = 0
    for move, same in groupby(moves):
        end = start + len(list(same))
        yield move, start, end
        start = end


def streak_of(step: Step, start: int, end: int) -> Streak | None:
    """The streak, if each of its events is one of another request and all are of one ticket."""
    streak = Streak(step, start, end)
    is_plain = (
        isinstance(streak.ticket, int)
        and step.columns[TICKET][start:end].count(streak.ticket) == streak.length
        and len(set(streak.refs)) == streak.length
    )
    return streak if is_plain else None


def nothing(_: Streak) -> None:
    """Nothing is kept of it."""
