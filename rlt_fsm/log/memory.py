"""The event log in memory: the same behaviour as a file, no copies, gone with the process."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.moves import PLAIN_MOVE
from rlt_fsm.states import Outcome

from .event_log import EventLog
from .move_rows import MOVE_ROWS, edges
from .port import (
    EdgeRow,
    EventCells,
    LogReader,
    LogWriter,
    MoveRow,
    RequestRow,
    RunHeader,
    RunInfo,
    StepRow,
)


@dataclass
class _Run:
    """Everything written to one run; readers see the first `committed_…` rows of each list."""

    header: RunHeader
    events: list[EventCells] = field(default_factory=list)
    requests: list[RequestRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    committed_events: int = 0
    committed_requests: int = 0
    committed_steps: int = 0
    outcome: str | None = None
    ended_at: str | None = None

    def info(self, run_id: int) -> RunInfo:
        events, steps = self.committed_events, self.committed_steps
        return RunInfo(
            run_id=run_id,
            started_at=self.header.started_at,
            ended_at=self.ended_at,
            outcome=self.outcome or self._outcome_so_far(),
            schema_version=self.header.schema_version,
            engine_version=self.header.engine_version,
            revision=self.header.revision,
            config=self.header.config,
            model=self.header.model,
            workload=self.header.workload,
            last_seq=self.events[events - 1][0] if events else 0,
            digest=self.steps[steps - 1][-1].hex() if steps else None,
        )

    def _outcome_so_far(self) -> Outcome:
        recover = PLAIN_MOVE["recover"]
        committed = islice(self.events, self.committed_events)
        recovered = any(event[5] == recover for event in committed)
        return Outcome.CRASHED if recovered else Outcome.RUNNING


class MemoryLog(EventLog):
    """An event log in this process. What was committed stays readable after `close`."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._closed = False

    @property
    def name(self) -> str:
        """Always `:memory:`."""
        return ":memory:"

    def begin_run(self, header: RunHeader) -> LogWriter:
        """Open a new run."""
        self.check_open()
        self._runs.append(_Run(header))
        return _MemoryWriter(self, len(self._runs), self._runs[-1])

    def continue_run(self, run_id: int) -> LogWriter:
        """Go on with a run; what was never committed is gone."""
        self.check_open()
        run = self._runs[run_id - 1]
        assert run.outcome is None, f"run {run_id} has ended"
        del run.events[run.committed_events :]
        del run.requests[run.committed_requests :]
        del run.steps[run.committed_steps :]
        return _MemoryWriter(self, run_id, run)

    def reader(self) -> LogReader:
        """A reader of what is committed whenever it is asked."""
        return _MemoryReader(self._runs)

    def close(self) -> None:
        """Store nothing more."""
        self._closed = True

    def check_open(self) -> None:
        """Refuse to store anything after `close`."""
        if self._closed:
            raise LogUnavailable(f"{self.name}: the log is closed; open a new one")


class _MemoryWriter(LogWriter):
    def __init__(self, log: MemoryLog, run_id: int, run: _Run) -> None:
        self._log = log
        self._run_id = run_id
        self._run = run
        self._last_seq = run.events[-1][0] if run.events else 0

    @property
    def run_id(self) -> int:
        return self._run_id

    def write(
        self,
        events: Sequence[EventCells],
        requests: Sequence[RequestRow] = (),
        steps: Sequence[StepRow] = (),
    ) -> None:
        run = self._run
        assert run.outcome is None, "the run has ended"
        if events:
            assert events[0][0] > self._last_seq, f"seq {events[0][0]} was written before"
            self._last_seq = events[-1][0]
            run.events += events
        run.requests += requests
        run.steps += steps

    @property
    def durable_seq(self) -> int:
        events, committed = self._run.events, self._run.committed_events
        return events[committed - 1][0] if committed else 0

    def commit(self) -> None:
        self._log.check_open()
        run = self._run
        run.committed_events = len(run.events)
        run.committed_requests = len(run.requests)
        run.committed_steps = len(run.steps)

    def end(self, outcome: str, ended_at: str) -> None:
        self.commit()
        self._run.outcome, self._run.ended_at = outcome, ended_at


class _MemoryReader(LogReader):
    def __init__(self, runs: list[_Run]) -> None:
        self._runs = runs

    def _run(self, run_id: int) -> _Run | None:
        return self._runs[run_id - 1] if 1 <= run_id <= len(self._runs) else None

    def absent(self) -> None:
        return

    def runs(self) -> list[RunInfo]:
        return [run.info(number) for number, run in enumerate(self._runs, start=1)]

    def moves(self, run_id: int) -> list[MoveRow]:  # noqa: ARG002  # one table for every run
        return list(MOVE_ROWS)

    def edges(self, run_id: int) -> list[EdgeRow]:  # noqa: ARG002  # one table for every run
        return [EdgeRow(row.move, *edge) for row in MOVE_ROWS for edge in edges(row)]

    def requests(self, run_id: int, after_ref: int = -1) -> list[RequestRow]:
        run = self._run(run_id)
        if run is None:
            return []
        rows = run.requests[: run.committed_requests]
        return [RequestRow(*row) for row in rows if row[0] > after_ref]

    def events(self, run_id: int, after_seq: int = 0) -> Iterator[EventCells]:
        run = self._run(run_id)
        if run is None:
            return iter(())
        committed = islice(run.events, run.committed_events)
        return (event for event in committed if event[0] > after_seq) if after_seq else committed

    def first_after(self, run_id: int, seq: int) -> EventCells | None:
        run = self._run(run_id)
        if run is None:
            return None
        place = bisect_right(run.events, seq, key=itemgetter(0))
        return run.events[place] if place < run.committed_events else None

    def select(
        self,
        run_id: int,
        *,
        refs: Collection[int] = (),
        moves: Collection[int] = (),
        after_seq: int = 0,
        until_seq: int | None = None,
    ) -> Iterator[EventCells]:
        refs, moves = frozenset(refs), frozenset(moves)
        for event in self.events(run_id, after_seq):
            if until_seq is not None and event[0] > until_seq:
                return
            if event[4] in refs or event[5] in moves:
                yield event

    def steps(self, run_id: int, after_step: int = -1) -> Iterator[StepRow]:
        run = self._run(run_id)
        if run is None:
            return iter(())
        first = bisect_right(run.steps, after_step, key=itemgetter(0))
        return islice(run.steps, first, run.committed_steps)

    def step_at(self, run_id: int, step: int) -> StepRow | None:
        run = self._run(run_id)
        if run is None:
            return None
        end = bisect_right(run.steps, step, hi=run.committed_steps, key=itemgetter(0))
        return run.steps[end - 1] if end else None
