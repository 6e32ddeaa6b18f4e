"""`archive --every`: takes what is old out of a run's log until the run is over.

When to look, when to take, and when nothing more will come; what is taken is `rotator.py`'s to say.
"""

import time
from collections.abc import Callable
from threading import Event
from typing import Final, Literal

import msgspec

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.presence import is_in_use
from rlt_fsm.log.sole_archiver import sole_archiver

from .archive import Archived
from .rotator import Look, Rotator

LOOK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0

Ending = Literal["over", "abandoned", "stopped"]
Told = Callable[[Archived], None]
Troubled = Callable[[LogUnavailable], None]


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """What a rotation came to: how it ended, and how many archives and events it moved.

    `over`: the run is. `abandoned`: nobody writes it any more, and it has no end. `stopped`: the
    rotation was asked to end. `run_id` is the last one that was looked at; None: no run came.
    """

    ended: Ending
    run_id: int | None
    archives: int
    events: int


class _StoppedError(Exception):
    """The rotation was asked to end while it verified."""


def rotate(
    rotator: Rotator,
    *,
    every_s: float,
    stop: Event,
    told: Told,
    troubled: Troubled,
    patience_s: float = PATIENCE_S,
) -> Rotated:
    """Take what is old out of a log, once in `every_s` seconds, until its run is over or `stop` is.

    `told` is called for each archive; `troubled` for each trouble with making one, once:
    later turns try again. A run is over with its `close`; when nobody has its file open for
    `patience_s`; or, where that cannot be told, when nothing was written for as long. As long a
    file, or a run in it, is waited for.

    Raises:
        NotVerifiedError: something in what is old is not clean; it stays in the log.
        LogError: the log never came or cannot be read, or somebody else does the same; nothing can
            be stored at the first turn, or at the end of the run.
    """
    with sole_archiver(rotator.path):
        rotator.take_back()
        return _Rotation(rotator, every_s, stop, told, troubled).until_over(patience_s)


class _Rotation:
    def __init__(
        self, rotator: Rotator, every_s: float, stop: Event, told: Told, troubled: Troubled
    ) -> None:
        self._rotator = rotator
        self._every_s = every_s
        self._stop = stop
        self._told = told
        self._troubled = troubled
        self._trouble: str | None = None  # of the last turn
        self._has_begun = False  # a turn went well
        self._archives = self._events = 0
        self._look: Look | None = None

    def until_over(self, patience_s: float) -> Rotated:
        last_news_s, next_turn_s = time.monotonic(), 0.0
        while not self._stop.is_set():
            # Asked before the look, so that what a writer left before it went is seen.
            is_held = is_in_use(self._rotator.path)
            has_news, failure = self._look_again()
            now_s = time.monotonic()
            if has_news or (is_held and self._look is not None):
                last_news_s = now_s
            is_patient = now_s - last_news_s < patience_s
            if not is_patient:
                self._require_a_run(failure)
            ending = self._ending(is_patient=is_patient)
            if ending is not None or (self._look is not None and now_s >= next_turn_s):
                next_turn_s = now_s + self._every_s
                if not self._turn(is_last=ending is not None):
                    break
            if ending is not None:
                return self._result(ending)
            self._stop.wait(min(LOOK_EVERY_S, self._every_s))
        return self._result("stopped")

    def _ending(self, *, is_patient: bool) -> Ending | None:
        if self._look is None:
            return None
        if self._look.is_over:
            return "over"
        return None if is_patient else "abandoned"

    def _look_again(self) -> tuple[bool, LogUnavailable | None]:
        """Whether there is news, and what kept it from looking.

        A file that is just being made, or let go by its writer, cannot always be opened.
        """
        before = self._look
        try:
            self._look = self._rotator.look()
        except LogUnavailable as failure:
            return False, failure
        return self._look != before, None

    def _require_a_run(self, failure: LogUnavailable | None) -> None:
        """Say why there is nothing to look at."""
        if failure is not None:
            raise failure
        if self._look is None:
            self._rotator.require_a_run()

    # ---- one turn ----------------------------------------------------------------------------

    def _turn(self, *, is_last: bool) -> bool:
        """Take all that is old; False: it was asked to end meanwhile."""
        try:
            self._take()
        except _StoppedError:
            return False
        except LogUnavailable as trouble:
            if is_last or not self._has_begun:
                raise
            if str(trouble) != self._trouble:
                self._troubled(trouble)
            self._trouble = str(trouble)
        else:
            self._has_begun, self._trouble = True, None
        return not self._stop.is_set()

    def _take(self) -> None:
        while (done := self._rotator.turn(self._go_on)) is not None:
            self._archives += 1
            self._events += done.last_seq - done.first_seq + 1
            self._told(done)
            if self._stop.is_set() or not self._rotator.is_more_due:
                return

    def _go_on(self, _done: int, _total: int) -> None:
        if self._stop.is_set():
            raise _StoppedError

    def _result(self, ended: Ending) -> Rotated:
        return Rotated(
            ended=ended,
            run_id=None if self._look is None else self._look.run_id,
            archives=self._archives,
            events=self._events,
        )
