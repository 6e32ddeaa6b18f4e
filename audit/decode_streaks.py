"""S7 on streaks: decode rows, the end of their loops, and the outputs that come of them.

Says only that each event goes on from where its request stands; what is wrong where it does not is
S7's own to say, one by one.
"""

from collections.abc import Callable
from operator import attrgetter

from .legality import Move
from .streaks import Streak, Together, nothing
from .token_progress import TokenProgress

_position = attrgetter("position")
_loops = attrgetter("loops")


class DecodeStreaks:
    """What every request has computed is S7's: `by_ref`, read and written here as S7 does."""

    def __init__(self, by_ref: dict[int, TokenProgress], depths: int) -> None:
        self._by_ref = by_ref
        self._depths = depths
        self._asked: Streak | None = None  # the streak of the answer
        self._answer: list[TokenProgress] = []

    def together(self, move: Move) -> Together | None:
        """How to judge a streak of this move; None where it must be seen one by one."""
        if move.trigger == "output":
            return Together(self._are_outputs, nothing)
        if move.work is None:
            return None
        match move.trigger, *(state.partition(":")[2] for state in move.work):
            case "select", _, "DECODE_PRELUDE":
                return Together(self._are_rows, self._each(_preluded))
            case "select", _, "DECODE_RECURRENT":
                return Together(self._are_loops, self._each(_looped))
            case "select", _, "DECODE_CODA":
                return Together(self._are_rows, self._each(_coded))
            case "enqueue", "DECODE_RECURRENT", "DECODE_CODA":
                return Together(self._are_exits, self._exited)
            case _:
                return None

    def _own(self, streak: Streak) -> list[TokenProgress]:
        if self._asked is not streak:
            by_ref = self._by_ref
            self._asked, self._answer = streak, [by_ref[ref] for ref in streak.refs]
        return self._answer

    def _each(self, change: Callable[[TokenProgress], None]) -> Callable[[Streak], None]:
        def note(streak: Streak) -> None:
            for progress in self._own(streak):
                change(progress)

        return note

    def _are_rows(self, streak: Streak) -> bool:
        """PRELUDE and CODA: one token, the one that is due, at no depth."""
        return (
            list(map(_position, self._own(streak))) == streak.b
            and streak.d.count(None) == streak.length
            and streak.c.count(1) == streak.length
            and streak.e.count(0) == streak.length
        )

    def _are_loops(self, streak: Streak) -> bool:
        own = self._own(streak)
        return (
            list(map(_position, own)) == streak.b
            and list(map(_loops, own)) == streak.d
            and max(streak.d) < self._depths
            and streak.c.count(1) == streak.length
            and streak.e.count(0) == streak.length
        )

    def _are_exits(self, streak: Streak) -> bool:
        return list(map(_loops, self._own(streak))) == streak.a

    def _exited(self, streak: Streak) -> None:
        for progress, exit_depth in zip(self._own(streak), streak.a, strict=True):
            progress.exits.append(exit_depth)

    def _are_outputs(self, streak: Streak) -> bool:
        by_ref = self._by_ref
        return all(
            idx >= 0 and by_ref[ref].exits[idx] == exit_depth
            for ref, idx, exit_depth in zip(streak.refs, streak.a, streak.c, strict=True)
        )


def _preluded(progress: TokenProgress) -> None:
    progress.loops = 0


def _looped(progress: TokenProgress) -> None:
    progress.loops += 1


def _coded(progress: TokenProgress) -> None:
    progress.position += 1
