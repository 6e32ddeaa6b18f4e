"""`audit.replay`: a run's state at any seq or step, forwards and backwards, from its log alone.

Small steps fold what lies between. Checkpoints, kept in memory as the log is read, bound the way
back. A place that is far from all of them is reached by a *leap*: only the events of requests that
are alive there are read, with the few of all others that leave traces (`fold.COMMON`). Nothing is
ever written to the log.
"""

import os
from bisect import bisect_right, insort
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from types import TracebackType
from typing import Final, Self, cast

from rlt_fsm.arguments import MOST_WHOLE, whole
from rlt_fsm.errors import LogError
from rlt_fsm.log.port import EventStore

from .fold import COMMON, SETTLES, Fold
from .reader import MOVE, REF, SEQ, STEP, TICKET, Event, Log, RunLog, open_log
from .run_state import RunState

CHUNK: Final = 1024  # events folded at once
MAX_CHECKPOINTS: Final = 512  # above, every other one is forgotten
LEAP_BEYOND: Final = 50_000  # events: so many are folded rather than leapt over
LEAP_SHARE: Final = 6  # a leap to event n takes as long as to fold n / 6 events or so


def replay(db: str | os.PathLike[str] | EventStore, run: int | None = None) -> "Replay":
    """Open one run of a log to ask for its states; without `run` the newest one.

    Raises:
        LogError: the log cannot be opened or read, or has no such run.
    """
    log = open_log(db)
    try:
        return Replay(log, log.run(log.newest() if run is None else run))
    except BaseException:
        log.close()
        raise


class Replay:
    """The states of one run, up to the last event that was committed when it was opened.

    Args:
        log: where the run is; closed by `close`.
        run: the run.
        every: events between two checkpoints, to begin with.
        leap_beyond: how many events to fold rather than to leap over.
    """

    def __init__(
        self, log: Log, run: RunLog, *, every: int = 4096, leap_beyond: int = LEAP_BEYOND
    ) -> None:
        self._log = log
        self.run = run
        self.last_seq = run.info.last_seq
        self._every = every
        self._leap_beyond = leap_beyond
        self._fold = Fold(run)
        self._stream = _Stream(run, 0)
        self._checkpoints: list[tuple[int, RunState]] = [(0, self._fold.frozen())]

    # ---- asking ------------------------------------------------------------------------------

    def at(self, *, seq: int | None = None, step: int | None = None) -> RunState:
        """The state after event `seq`, or after the last event of step `step` (or before it).

        Seq 0 is the state before the first event. Give one of the two.

        Raises:
            LogError: the run does not go that far, or the log cannot be read.
        """
        if (seq is None) == (step is None):
            raise LogError("a place in a log is a seq or a step: give one of the two")
        if seq is None:
            seq = self.last_seq_of(whole("step", step, least=-MOST_WHOLE))
        seq = whole("seq", seq, least=-MOST_WHOLE)
        if not 0 <= seq <= self.last_seq:
            raise LogError(
                f"{self._log.name}: run {self.run.info.run_id} has seq 1 to {self.last_seq}: "
                f"there is no seq {seq}"
            )
        self._go_to(seq)
        return self._fold.frozen()

    def end(self) -> RunState:
        """The state after the last event."""
        return self.at(seq=self.last_seq)

    @property
    def last_step(self) -> int:
        """The step of the last event; 0 where there is none."""
        event = self._first_after(self.last_seq - 1)
        return 0 if event is None else event[STEP]

    def last_seq_of(self, step: int) -> int:
        """The last event of a step, or before it where the step has none.

        Raises:
            LogError: the run does not go that far.
        """
        last_step = self.last_step
        if not 0 <= step <= last_step:
            raise LogError(
                f"{self._log.name}: run {self.run.info.run_id} has steps 0 to {last_step}: "
                f"there is no step {step}"
            )
        low, high = 0, self.last_seq  # the answer lies between, both included
        while low < high:
            middle = (low + high) // 2
            event = self._first_after(middle)
            if event is None or event[STEP] > step:
                high = middle
            else:
                low = event[SEQ]
        return low

    def events(self, refs: list[int], *, after_seq: int = 0) -> Iterator[Event]:
        """The events of some requests, in order."""
        return self.run.select(refs=refs, after_seq=after_seq, until_seq=self.last_seq)

    def _first_after(self, seq: int) -> Event | None:
        event = self.run.first_after(seq)
        return None if event is None or event[SEQ] > self.last_seq else event

    # ---- getting there -----------------------------------------------------------------------

    def _go_to(self, seq: int) -> None:
        here = self._fold.state.seq
        place = bisect_right(self._checkpoints, seq, key=itemgetter(0)) - 1
        nearest, state = self._checkpoints[place]
        if not nearest <= here <= seq:
            self._restart(state)
            here = nearest
        if seq - here > max(self._leap_beyond, seq // LEAP_SHARE):
            # Few are alive at the very end of a closed run: nothing is nearer to it than itself.
            self._leap(seq if seq == self.last_seq else seq - seq % self._every)
        self._walk(seq)

    def _restart(self, state: RunState) -> None:
        self._fold.start(state)
        self._stream = _Stream(self.run, state.seq)

    def _walk(self, seq: int) -> None:
        """Fold on, keeping a checkpoint now and then."""
        for events in self._stream.up_to(seq):
            self._fold.feed(events)
            here = self._fold.state.seq
            if here - self._newest_before(here) >= self._every:
                self._keep()

    def _newest_before(self, seq: int) -> int:
        return self._checkpoints[bisect_right(self._checkpoints, seq, key=itemgetter(0)) - 1][0]

    def _keep(self) -> None:
        state = self._fold.frozen()
        insort(self._checkpoints, (state.seq, state), key=itemgetter(0))
        if len(self._checkpoints) > MAX_CHECKPOINTS:
            self._every *= 2
            del self._checkpoints[1::2]

    def _leap(self, seq: int) -> None:
        """Come to the state at `seq` without reading what is over by then."""
        moves = {number: move.trigger for number, move in self.run.moves.items()}
        common_moves = {number for number, trigger in moves.items() if trigger in COMMON}
        common = list(self.run.select(moves=common_moves, until_seq=seq))
        arrivals = _begun(common, moves, REF, ("submit", "submit_remote"), "retire")
        tickets = _begun(common, moves, TICKET, ("submit_batch",), "retire_batch")
        own = self.run.select(
            refs=arrivals, after_seq=min(arrivals.values(), default=seq) - 1, until_seq=seq
        )
        settled = self.run.select(
            moves={number for number, trigger in moves.items() if trigger in SETTLES},
            after_seq=min(tickets.values(), default=seq),
            until_seq=seq,
        )
        rest = (event for event in own if event[MOVE] not in common_moves)
        self._fold.start_anew(only=arrivals.keys())
        self._fold.feed(merge(common, rest, settled, key=itemgetter(SEQ)))
        state, last = self._fold.frozen(), self._first_after(seq - 1)
        state.seq, state.step = seq, state.step if last is None else last[STEP]
        self._restart(state)
        self._keep()

    # ---- as a context ------------------------------------------------------------------------

    def close(self) -> None:
        """Let the log go."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._log.__exit__(kind, error, trace)


def _begun(
    events: list[Event], triggers: dict[int, str], column: int, begins: tuple[str, ...], ends: str
) -> dict[int, int]:
    """What began and did not end, by its number in `column`: the seq at which it began."""
    begun: dict[int, int] = {}
    for event in events:
        trigger, number = triggers[event[MOVE]], cast("int", event[column])
        if trigger in begins:
            begun[number] = event[SEQ]
        elif trigger == ends:
            begun.pop(number, None)
    return begun


class _Stream:
    """A run's events from one place on, taken in chunks that end where one asks."""

    def __init__(self, run: RunLog, after_seq: int) -> None:
        self._run = run
        self._after_seq = after_seq
        self._events: Iterator[Event] | None = None
        self._ahead: list[Event] = []

    def up_to(self, seq: int) -> Iterator[list[Event]]:
        """The events that were not taken yet, up to `seq`."""
        while chunk := self._ahead or self._more():
            place = bisect_right(chunk, seq, key=itemgetter(SEQ))
            self._ahead = chunk[place:]
            if place:
                yield chunk[:place]
            if self._ahead:
                return

    def _more(self) -> list[Event]:
        if self._events is None:
            self._events = self._run.events_after(self._after_seq)
        return list(islice(self._events, CHUNK))
