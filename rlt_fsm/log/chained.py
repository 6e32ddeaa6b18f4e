"""A run's archives and the log that goes on from them, read as one log. Nothing is written here."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

from rlt_fsm.errors import LogError, LogUnavailable

from .event_log import EventLog
from .port import (
    Checkpoint,
    EdgeRow,
    EventCells,
    EventColumns,
    LogReader,
    LogWriter,
    MoveRow,
    RequestRow,
    RunHeader,
    RunInfo,
    StepRow,
)


class ChainedLog(EventLog):
    """The parts of a log, oldest first; runs that were never archived are in the last one.

    Raises:
        LogError: a part cannot be opened, or does not go on where the one before it ends.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._name = " + ".join(map(str, paths))
        self._parts: list[EventLog] = []
        try:
            for path in paths:
                self._parts.append(EventLog.open_for_reading(path))
            _require_joined(self._parts)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The parts' paths."""
        return self._name

    def begin_run(self, header: RunHeader) -> LogWriter:
        """Always refused."""
        del header
        raise LogUnavailable(f"{self._name}: nothing can be stored: these are parts of a log")

    def continue_run(self, run_id: int) -> LogWriter:
        """Always refused."""
        raise LogUnavailable(f"{self._name}: run {run_id} goes on in the last of these parts only")

    def reader(self) -> LogReader:
        """A reader over all parts."""
        return _ChainedReader([part.reader() for part in self._parts])

    def damage(self) -> str | None:
        """What is broken in any part."""
        found = (part.damage() for part in self._parts)
        return next((what for what in found if what is not None), None)

    def close(self) -> None:
        """Let all files go."""
        for part in self._parts:
            part.close()


def _require_joined(parts: Sequence[EventLog]) -> None:
    """Every run goes on from part to part among those that hold it, up to the last of all."""
    infos = [{info.run_id: info for info in part.reader().runs()} for part in parts]
    for run_id in sorted(set[int]().union(*infos)):
        held = [number for number, runs in enumerate(infos) if run_id in runs]
        if held[-1] != len(parts) - 1:
            raise _goes_not_on(parts[-1], run_id)
        for before, after in pairwise(held):
            _require_next(parts[before], infos[before][run_id], parts[after])


def _require_next(before: EventLog, end: RunInfo, after: EventLog) -> None:
    """A run must end in one part where it begins in the next, by the digest of the chain."""
    begin = after.reader().checkpoint(end.run_id)
    if begin is None:
        raise _goes_not_on(after, end.run_id)
    if begin.seq != end.last_seq or begin.digest.hex() != end.digest:
        raise LogError(
            f"{after.name}: run {end.run_id} begins after seq {begin.seq} (digest "
            f"{begin.digest.hex()[:16]}…), {before.name} ends with seq {end.last_seq} (digest "
            f"{str(end.digest)[:16]}…): give all archives of one log, oldest first"
        )


def _goes_not_on(part: EventLog, run_id: int) -> LogError:
    return LogError(
        f"{part.name}: run {run_id} does not go on from an archive here: "
        "give the archives of one log, oldest first, and that log last"
    )


class _ChainedReader(LogReader):
    def __init__(self, parts: list[LogReader]) -> None:
        self._parts = parts
        self._last = parts[-1]
        self._runs = [{info.run_id for info in part.runs()} for part in parts]

    def _of(self, run_id: int) -> list[LogReader]:
        return [part for part, runs in zip(self._parts, self._runs, strict=True) if run_id in runs]

    def absent(self) -> frozenset[str] | None:
        return self._last.absent()

    def runs(self) -> list[RunInfo]:
        return self._last.runs()

    def moves(self, run_id: int) -> list[MoveRow]:
        return self._last.moves(run_id)  # a log keeps its numbers and only adds to them

    def edges(self, run_id: int) -> list[EdgeRow]:
        return self._last.edges(run_id)

    def requests(self, run_id: int, after_ref: int = -1) -> list[RequestRow]:
        return self._last.requests(run_id, after_ref)  # none are ever taken out

    def events(self, run_id: int, after_seq: int = 0) -> Iterator[EventCells]:
        return chain.from_iterable([part.events(run_id, after_seq) for part in self._of(run_id)])

    def columns(self, run_id: int, after_seq: int = 0) -> Iterator[EventColumns]:
        return chain.from_iterable([part.columns(run_id, after_seq) for part in self._of(run_id)])

    def checkpoint(self, run_id: int) -> Checkpoint | None:
        parts = self._of(run_id)
        return parts[0].checkpoint(run_id) if parts else None

    def boundaries(self, run_id: int) -> list[Checkpoint]:
        found = (part.checkpoint(run_id) for part in self._of(run_id)[1:])
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def first_after(self, run_id: int, seq: int) -> EventCells | None:
        found = (part.first_after(run_id, seq) for part in self._of(run_id))
        return next((event for event in found if event is not None), None)

    def select(
        self,
        run_id: int,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[EventCells]:
        return chain.from_iterable(
            part.select(run_id, refs=refs, moves=moves, after_seq=after_seq, until_seq=until_seq)
            for part in self._of(run_id)
        )

    def steps(self, run_id: int, after_step: int = -1) -> Iterator[StepRow]:
        return chain.from_iterable(part.steps(run_id, after_step) for part in self._of(run_id))

    def step_at(self, run_id: int, step: int) -> StepRow | None:
        found = (part.step_at(run_id, step) for part in reversed(self._of(run_id)))
        return next((row for row in found if row is not None), None)
