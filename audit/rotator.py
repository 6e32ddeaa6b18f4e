"""Archives what is old in a log, a turn at a time, beside the engine that writes it.

A turn keeps nothing in hand for the next one: it goes on from the log's checkpoint, so that every
event is verified once, and a rotation that was killed is taken up by whoever comes next. An archive
is named by run and last step; one that is there although the log has its events still was being let
go when somebody was killed: it is held against the log, and let go.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from rlt_fsm.arguments import whole
from rlt_fsm.errors import LogError, LogUnavailable
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.presence import holds_something

from .archive import (
    Archived,
    EngineState,
    NothingToTakeError,
    move_out,
    verified_cut,
)
from .reader import Log, RunLog, open_log
from .run_pass import Progress

MOST_EVENTS: Final = 2_000_000  # of one archive: more of them are made where more is due


class NotStoredError(LogUnavailable):
    """What is old cannot be moved now; it is in the log, and the next turn tries again."""


class Look(NamedTuple):
    """How far a run is."""

    run_id: int
    last_seq: int
    is_over: bool


class Rotator:
    """Takes the old events out of one log.

    Args:
        db: the log's file.
        into: the folder for the archives.
        keep_events: at least so many of a run's newest events stay.
        engine_state: what tells an engine's state.
        run: the run; None: whichever is the newest at a turn.

    Raises:
        LogError: the folder cannot be written to.
    """

    def __init__(
        self,
        db: str | os.PathLike[str],
        into: str | os.PathLike[str],
        *,
        keep_events: int,
        engine_state: EngineState,
        run: int | None = None,
    ) -> None:
        self.path, self._into = Path(db), Path(into)
        self._keep_events = whole("keep_events", keep_events, least=1)
        self._engine_state = engine_state
        self._run = run
        self.is_more_due = False  # the last turn left something to take at once
        if not self._into.is_dir():
            raise LogUnavailable(f"{into}: there is no such folder: make it first")
        if not os.access(self._into, os.W_OK | os.X_OK):
            raise LogUnavailable(f"{into}: nothing can be written there: make the folder writable")

    def take_back(self) -> None:
        """Take back what somebody left half done who was killed while closing the log.

        Raises:
            LogError: it is no log of ours, or cannot be written to.
        """
        if holds_something(self.path):
            EventLog.open(self.path).close()

    def look(self) -> Look | None:
        """How far the run is; None: there is none yet.

        Raises:
            LogError: the log cannot be read.
        """
        if not holds_something(self.path):
            return None
        with open_log(self.path) as log:
            number = self._wanted(log)
            info = next((info for info in log.runs() if info.run_id == number), None)
        return None if info is None else Look(info.run_id, info.last_seq, info.ended_at is not None)

    def require_a_run(self) -> None:
        """Say why there is no run to look at.

        Raises:
            LogError: there is no such file, it is no log, or it has no such run.
        """
        with open_log(self.path) as log:
            number = log.newest() if self._run is None else self._run
            log.run(number, from_checkpoint=True)

    def turn(self, progress: Progress | None = None) -> Archived | None:
        """Move what is old into an archive; None: nothing is.

        Raises:
            NotVerifiedError: it is not clean; nothing changes.
            NotStoredError: it cannot be stored now.
            LogError: the log cannot be read.
        """
        self.is_more_due = False
        there = self._archives_there()
        with open_log(self.path) as log:
            number = self._wanted(log)
            if number is None:
                return None
            run = log.run(number, from_checkpoint=True)
            begins_at = -1 if run.checkpoint is None else run.checkpoint.step
            unfinished = min((s for r, s in there if r == number and s > begins_at), default=None)
            before_step = self._first_to_stay(run) if unfinished is None else unfinished + 1
            if before_step is None:
                return None
            try:
                cut = verified_cut(
                    log, run, before_step, self._engine_state, progress, nearby=unfinished is None
                )
            except NothingToTakeError:
                if unfinished is not None:
                    raise self._of_another_log(number, unfinished) from None
                return None
        if unfinished is not None and cut.checkpoint.step != unfinished:
            raise self._of_another_log(number, unfinished)
        target = self._path_of(number, cut.checkpoint.step)
        try:
            done = move_out(self.path, target, run, cut, is_there=unfinished is not None)
        except LogError as error:
            raise NotStoredError(str(error)) from error
        self.is_more_due = done.events_left > self._keep_events + MOST_EVENTS // 2
        return done

    def _wanted(self, log: Log) -> int | None:
        if self._run is not None:
            return self._run
        return max((info.run_id for info in log.runs()), default=None)

    def _first_to_stay(self, run: RunLog) -> int | None:
        """The step of the oldest event that stays; None: nothing is before it."""
        begin = 0 if run.checkpoint is None else run.checkpoint.seq
        last = min(run.info.last_seq - self._keep_events, begin + MOST_EVENTS)
        first, stays = run.first_after(begin), run.first_after(max(begin, last))
        if first is None or stays is None or stays[1] <= first[1]:
            return None
        return stays[1]

    # ---- the archives ------------------------------------------------------------------------

    def _path_of(self, run: int, step: int) -> Path:
        return self._into / f"{self.path.stem}.run-{run:04}.step-{step:012}.db"

    def _archives_there(self) -> list[tuple[int, int]]:
        """(run, last step) of each archive with a name of this log's."""
        pattern = re.compile(rf"{re.escape(self.path.stem)}\.run-(\d{{4,}})\.step-(\d{{12}})\.db")
        try:
            names = [path.name for path in self._into.iterdir()]
        except OSError as error:
            why = error.strerror or error
            raise NotStoredError(f"{self._into}: cannot be read ({why})") from error
        found = filter(None, map(pattern.fullmatch, names))
        return [(int(match[1]), int(match[2])) for match in found]

    def _of_another_log(self, run: int, step: int) -> NotStoredError:
        return NotStoredError(
            f"{self._path_of(run, step)}: run {run} of {self.path} has no such step: this is an "
            "archive of another log: move it away, or give another folder"
        )
