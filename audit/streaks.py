"""Events of one kind that follow each other, as columns: what the invariants may judge at one go.

A batch of 256 rows is 256 `select` events that differ in little. A rule that has a `Together` for a
move says of a whole streak either that no event of it breaks the rule, and takes note of them all,
or that it does not know: then every event is shown to every rule, one by one, as ever. The rules
one by one are the reference; a streak only spares them what is as it should be.

Where loops end early, those that go on and those that leave come in turn: `enqueue` events of one
ticket whose work came from the same place are kin, and a stretch of them is one streak for each of
its moves. Each request is in it once, so that none of the streaks changes what another one sees.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, groupby
from typing import Final, NamedTuple, cast

import msgspec

from rlt_fsm.log.port import EventColumns

from .legality import Move
from .reader import BLOCKS, CAUSE, MOVE, REF, SEQ, TICKET, A, B, C, D, E, Event
from .recount import Step

SHORTEST: Final = 6  # events; fewer are as fast one by one
ONE_BY_ONE: Final = 1 << 62  # no streak is as long
# What a rule raises at a row that lacks what its trigger must tell.
UNREADABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, LookupError)


class Streak:
    """Events of a step that all have the same move and ticket, and a request each."""

    __slots__ = (
        "_columns", "a", "b", "blocks", "c", "causes", "d", "e", "length", "refs", "seqs", "ticket",
    )  # fmt: skip

    def __init__(self, ticket: int, columns: EventColumns) -> None:
        self._columns = columns
        self.ticket = ticket
        self.refs: list[int] = columns[REF]
        self.seqs: list[int] = columns[SEQ]
        self.length = len(self.refs)
        self.blocks = columns[BLOCKS]
        self.causes = columns[CAUSE]
        self.a = columns[A]
        self.b = columns[B]
        self.c = columns[C]
        self.d = columns[D]
        self.e = columns[E]

    @property
    def first(self) -> Event:
        """Its first event."""
        return cast("Event", tuple(column[0] for column in self._columns))


class Together(NamedTuple):
    """What a rule does with a streak. `holds` changes nothing; `note` is called if all hold.

    `holds` may raise what a garbled row raises: it holds only where it returns True.
    """

    holds: Callable[[Streak], bool]
    note: Callable[[Streak], None]


class Kin(dict[int, int]):
    """By move: the one among its kin that was asked for first."""

    def __init__(self, moves: Mapping[int, Move]) -> None:
        super().__init__()
        self._moves = moves
        self._first: dict[str | int, int] = {}  # by source of the work

    def __missing__(self, number: int) -> int:
        move = self._moves[number]
        has_kin = move.trigger == "enqueue" and move.edges == (None, move.work, None, None)
        kind = move.work[0] if has_kin and move.work is not None else number
        first = self[number] = self._first.setdefault(kind, number)
        return first


def stretches(moves: Iterable[int], kin: Kin) -> Iterator[tuple[int, int]]:
    """(start, end) of the events of a step, cut wherever the next move is not kin."""
    start = 0
    for _, same in groupby(map(kin.__getitem__, moves)):
        end = start + len(list(same))
        yield start, end
        start = end


def streaks_of(step: Step, start: int, end: int) -> dict[int, Streak]:
    """The stretch's streaks by move, if its events are of one ticket and of a request each; else
    none.
    """
    columns = [column[start:end] for column in step.columns]
    ticket, refs, moves = columns[TICKET][0], columns[REF], columns[MOVE]
    is_plain = (
        isinstance(ticket, int)
        and columns[TICKET].count(ticket) == len(refs)
        and len(set(refs)) == len(refs)
    )
    if not is_plain:
        return {}
    if moves.count(moves[0]) == len(moves):
        return {moves[0]: Streak(ticket, columns)}
    streaks = {}
    for move in dict.fromkeys(moves):
        is_own = [own == move for own in moves]
        streaks[move] = Streak(ticket, [list(compress(column, is_own)) for column in columns])
    return streaks


def all_hold(judges: Sequence[Together], streak: Streak) -> bool:
    """Whether nothing is wrong with the streak, as far as every rule that listens to it can say."""
    try:
        return bool(judges) and all(judge.holds(streak) for judge in judges)
    except UNREADABLE:
        return False


def nothing(_: Streak) -> None:
    """Nothing is kept of it."""
