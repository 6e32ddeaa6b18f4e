"""Opens a log and gives its runs: header, requests, decoded moves, streaming events and step rows.

Reads through the log port only and never writes. What the facts mean is not decided here.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar, cast

import msgspec

from rlt_fsm.arguments import of_kind, whole
from rlt_fsm.errors import LogError, LogUnavailable
from rlt_fsm.log.chained import ChainedLog
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import (
    EdgeRow,
    EventColumns,
    EventStore,
    LogReader,
    RequestRow,
    RunInfo,
    StepRow,
)
from rlt_fsm.machines import NULL

from .beginning import from_beginning
from .facts import ConfigFacts, ModelFacts
from .legality import MACHINE_NAMES, Edge, Move, read_move

T = TypeVar("T")
Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | EventStore


class Event(NamedTuple):
    """An event's columns, typed as a well-formed row of its trigger has them (`log.port.EventRow`).

    Rows may be plain tuples of this shape: use the column numbers below, never the names.
    """

    seq: int
    step: int
    ticket: int
    t_ns: int
    ref: int
    move: int
    blocks: int
    cause: int | None
    reason: str | None
    a: int
    b: int
    c: int
    d: float | int | None
    e: int
    extra: str | None


SEQ: Final = 0
STEP: Final = 1
TICKET: Final = 2
REF: Final = 4
MOVE: Final = 5
BLOCKS: Final = 6
CAUSE: Final = 7
REASON: Final = 8
A: Final = 9
B: Final = 10
C: Final = 11
D: Final = 12
E: Final = 13
EXTRA: Final = 14


class RunLog:
    """One run of a log as it stands now, to be read once, also while it is being written.

    `requests` by ref and `moves` by number are complete for the events that `events` streams;
    `shown` has the moves as the `transition` view shows them, by number; `absent` names what a log
    of another engine has no place for (`step`, `event.cause`). `checkpoint`: where the run begins
    here, if its first events were archived; `boundaries`: those between its parts, by step.
    """

    def __init__(self, reader: LogReader, run_id: int) -> None:
        self._reader = reader
        self._run_id = run_id
        # Bounds what is read, so it comes first: all that these events refer to is there already.
        self.checkpoint, self._chunks = from_beginning(reader, run_id)
        absent = reader.absent()
        self.boundaries = {at.step: at for at in reader.boundaries(run_id)}
        self.is_foreign = absent is not None  # another engine wrote it
        self.absent = absent or frozenset()
        self.info = self._own_info()
        self.config = self._config()
        self.model = self._header("model", self.info.model, ModelFacts)
        self.moves: dict[int, Move] = {}
        self.shown: dict[int, Move] = {}
        self.requests: dict[int, RequestRow] = {}
        self._learn()

    def go_on(self, reader: LogReader, after_seq: int) -> None:
        """Take up what was committed since, from `after_seq` on: `events` begins anew there."""
        self._reader = reader
        self._chunks = reader.columns(self._run_id, after_seq)
        self._learn()

    def read_end(self) -> None:
        """Read the header again: `close` is there, so its end should be."""
        self.info = self._own_info()

    def _own_info(self) -> RunInfo:
        return next(info for info in self._reader.runs() if info.run_id == self._run_id)

    def _learn(self) -> None:
        """Everything that the events refer to."""
        rows = self._reader.moves(self._run_id)
        if len(rows) != len(self.moves):
            self.moves.update({row[0]: read_move(row) for row in rows})
            self.shown.update(self._shown_moves(self._reader.edges(self._run_id)))
        newest = next(reversed(self.requests), -1)
        for row in self._reader.requests(self._run_id, newest):
            self.requests[row[0]] = row

    def _config(self) -> ConfigFacts:
        config = self._header("config", self.info.config, ConfigFacts)
        if "event.blocks" not in self.absent:
            return config
        # A pool of which nothing is told: whether something would have fitted cannot be known.
        cache = msgspec.structs.replace(config.cache, num_blocks=None)
        return msgspec.structs.replace(config, cache=cache)

    def _header(self, name: str, text: str, into: type[T]) -> T:
        try:
            return msgspec.json.decode(text, type=into)
        except msgspec.MsgspecError as error:
            raise LogError(f"run {self.info.run_id}: its {name} cannot be read: {error}") from error

    def _shown_moves(self, rows: list[EdgeRow]) -> dict[int, Move]:
        """Every move as `transition` shows it."""
        edges: dict[tuple[int, str], Edge] = {
            (row.move, row.machine): (row.source or NULL, row.dest or NULL) for row in rows
        }
        return {
            number: Move(move.trigger, *(edges.get((number, name)) for name in MACHINE_NAMES))
            for number, move in self.moves.items()
        }

    def events(self) -> Iterator[Event]:
        """The events in order of seq."""
        rows = chain.from_iterable(zip(*columns, strict=True) for columns in self._chunks)
        return cast("Iterator[Event]", rows)

    def chunks(self) -> Iterator[EventColumns]:
        """The events in order of seq, a chunk at a time, as columns."""
        return self._chunks

    def events_after(self, seq: int) -> Iterator[Event]:
        """The events after `seq`, up to the last one that is committed now."""
        return cast("Iterator[Event]", self._reader.events(self.info.run_id, seq))

    def first_after(self, seq: int) -> Event | None:
        """The first event after `seq`, found without reading those before it."""
        return cast("Event | None", self._reader.first_after(self.info.run_id, seq))

    def select(
        self,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[Event]:
        """The events with one of these refs or moves within a range, in order."""
        rows = self._reader.select(
            self.info.run_id, refs=refs, moves=moves, after_seq=after_seq, until_seq=until_seq
        )
        return cast("Iterator[Event]", rows)

    def steps(self, after_step: int = -1) -> Iterator[StepRow]:
        """The steps that have ended, in order; there may be newer ones than the events."""
        return map(StepRow._make, self._reader.steps(self.info.run_id, after_step))


# What reading ends with where a value is not of its column's type.
STUMBLES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError)


class Log:
    """A log opened for reading: a context manager over its runs."""

    def __init__(self, store: EventStore, *, owned: bool) -> None:
        self._store = store
        self._owned = owned
        self._reader = store.reader()

    @property
    def name(self) -> str:
        """The path or URL, for messages."""
        return self._store.name

    def runs(self) -> list[RunInfo]:
        """Every run's header, by run number."""
        return self._reader.runs()

    def newest(self) -> int:
        """The number of the run that began last.

        Raises:
            LogError: the log has no runs.
        """
        numbers = [info.run_id for info in self.runs()]
        if not numbers:
            raise LogError(f"{self.name}: the log has no runs")
        return max(numbers)

    def run(self, run_id: int, *, from_checkpoint: bool = False) -> RunLog:
        """One run; with `from_checkpoint` also where its first events are archived.

        Raises:
            LogError: there is no such run, its header cannot be read, or it does not begin here.
        """
        run_id = whole("run", run_id, least=0)
        known = [info.run_id for info in self.runs()]
        if run_id not in known:
            numbers = ", ".join(map(str, known)) or "none"
            raise LogError(f"{self.name}: there is no run {run_id}; its runs: {numbers}")
        checkpoint = self._reader.checkpoint(run_id)
        if checkpoint is not None and not from_checkpoint:
            raise LogError(
                f"{self.name}: run {run_id} begins after seq {checkpoint.seq} here, what was "
                f"before is in {checkpoint.archive}: put its parts together (`rlt-audit join`)"
            )
        return RunLog(self._reader, run_id)

    @property
    def store(self) -> EventStore:
        """What was opened."""
        return self._store

    @property
    def reader(self) -> LogReader:
        """What reads its rows."""
        return self._reader

    def close(self) -> None:
        """Let the file go, if it was opened here."""
        if self._owned:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an error that damage to the file explains is told as such.

        Raises:
            LogUnavailable: a row holds what its column cannot, and the reader stumbled over it.
        """
        try:
            if isinstance(error, STUMBLES) and (damage := self._store.damage()) is not None:
                sentence = f"{self.name}: the file is damaged ({damage}): restore a copy of it"
                raise LogUnavailable(sentence) from error
        finally:
            self.close()


def open_log(db: Source) -> Log:
    """Open a log for reading: a path, a URL, the archives of a log and that log, oldest first, or
    an open EventLog, which stays its owner's to close.

    Raises:
        LogError: missing, not a log, of an unknown schema, or locked; one sentence says which.
    """
    if isinstance(db, Sequence) and not isinstance(db, str):
        for part in db:
            of_kind("db", part, (str, os.PathLike), "archives as paths, oldest first, then the log")
        parts = [os.fspath(path) for path in db]
        if not parts:
            raise LogError("db=[]: no log at all: name the archives, oldest first, and the log")
        return Log(ChainedLog(parts), owned=True) if len(parts) > 1 else open_log(parts[0])
    if isinstance(db, (str, os.PathLike)):
        return Log(EventLog.open_for_reading(os.fspath(db)), owned=True)
    of_kind("db", db, EventLog, "a path, a URL or an open event log")
    return Log(db, owned=False)
