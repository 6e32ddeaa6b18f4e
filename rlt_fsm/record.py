"""What a recorded run was given and what its model answered: all that a re-drive needs of a log.

Given: the configuration, the calls (adds and aborts) and crashes, with the steps before which they
came.
Answered: tokens, exit depths, logprobs, and which batches the device failed. What the engine made
of it (admissions, batches, preemptions) is left out on purpose: a re-drive decides that anew.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from .batch import ModelFacts, RequestSpec
from .config import EngineConfig
from .errors import LogError
from .events import (
    Aborted,
    BatchCompleted,
    BatchFailed,
    Enqueued,
    Fact,
    OutputSampled,
    Refused,
    Retired,
    Rewound,
    RunClosed,
    RunOpened,
    RunRecovered,
    Selected,
    Submitted,
    VerdictGiven,
)
from .log.port import EventRow, EventStore, LogReader
from .replay import Recorded, recorded
from .states import Outcome, WorkKey

Name = tuple[str, int]  # request id, generation


class Added(NamedTuple):
    """A call of `add_request`, accepted or refused."""

    step: int
    ref: int
    spec: RequestSpec


class AbortCalled(NamedTuple):
    """A call of `abort_request` that ended a request."""

    step: int
    ref: int
    name: Name


class Crashed(NamedTuple):
    """The process ended before step `step`, and the run was recovered."""

    step: int


Call = Added | AbortCalled | Crashed
# What a call leaves in the log by itself, and no step needs to be taken for.
_OF_CALLS = (RunOpened, Submitted, Refused, Aborted, Retired)


class Answer(NamedTuple):
    """One recorded output; the `note` is that of `BatchResult`."""

    token_id: int
    logprob: float | None
    note: str | None


class Landed(NamedTuple):
    """A batch that was settled: its `error` as recorded, None where it was completed. `was_taken`:
    work went on after its submission, so the device had taken it.
    """

    step: int
    error: str | None
    was_taken: bool

    def refusal_at(self, step: int) -> str | None:
        """The class of the error where the device did not take the batch, submitted at `step`."""
        if self.error is None or self.was_taken or self.step != step:
            return None
        return self.error.rpartition("kind=")[2]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as its caller and its model saw it.

    `exits[name][idx]` is the exit depth of output idx, known once the token has left the loop, and
    so for tokens that were never sampled too. `failures[step]` names the class of the error with
    which the device failed that step's batch. `landings[ticket]` tells, in the order of completion,
    when each batch was settled. `outcome` is None for a run without its end.
    """

    config: EngineConfig
    model: ModelFacts
    workload: str | None
    calls: tuple[Call, ...]
    answers: Mapping[Name, list[Answer]]
    exits: Mapping[Name, dict[int, int]]
    failures: Mapping[int, str]
    landings: Mapping[int, Landed]
    has_verdicts: bool
    last_step: int
    outcome: Outcome | None
    fallback: str | None  # why the recorded runner did something otherwise than it was asked to


def read_record(log: EventStore, run_id: int) -> Record:
    """Read a run's record.

    Raises:
        LogError: there is no such run, or its rows cannot be read.
    """
    reader = log.reader()
    info = next((info for info in reader.runs() if info.run_id == run_id), None)
    if info is None:
        known = ", ".join(str(info.run_id) for info in reader.runs()) or "none"
        raise LogError(f"{log.name}: there is no run {run_id}; its runs: {known}")
    reading = _Reading(f"{log.name}: run {run_id}")
    try:
        for item in recorded(reader, run_id):
            reading.read(item)
        return reading.record(msgspec.json.decode(info.model)["name"], info.workload)
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AssertionError) as error:
        raise LogError(
            f"{log.name}: run {run_id} cannot be driven again: "
            f"{_unreadable(reader, run_id, reading.seq, error)}"
        ) from error


def _unreadable(reader: LogReader, run_id: int, read_seq: int, error: Exception) -> str:
    """What is wrong with the first event that could not be read."""
    cells = reader.first_after(run_id, read_seq)
    if cells is None:
        return f"its header cannot be read ({error!r})"
    row = EventRow(*cells)
    trigger = next((move.trigger for move in reader.moves(run_id) if move.move == row.move), "?")
    place = f"its `{trigger}` at seq {row.seq}"
    if trigger == "output":
        told = {"index": row.a, "token": row.b, "exit depth": row.c}
        missing = " and ".join(name for name, value in told.items() if value is None)
        if missing:
            return f"{place} records no {missing}"
    return f"{place} cannot be read (`rlt-audit verify` says what is wrong)"


class _Reading:
    """Gathers a record from the facts of a run, in their order."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.seq = self._last_step = 0
        self._opened: RunOpened | None = None
        self._names: dict[int, Name] = {}
        self._calls: list[Call] = []
        self._answers: dict[Name, list[Answer]] = {}
        self._exits: dict[Name, dict[int, int]] = {}
        self._failures: dict[int, str] = {}
        self._landings: dict[int, Landed] = {}
        self._taken: set[int] = set()  # tickets that some work followed
        self._codas: dict[Name, int] = {}  # selected so far
        self._coda_due: set[int] = set()  # refs
        self._has_verdicts = False
        self._recovered_step: int | None = None  # the last one
        self._was_taken_step = False  # the last step has more than what was called
        self._outcome: Outcome | None = None

    def read(self, item: Recorded) -> None:
        """Take one fact in."""
        fact, self.seq, step, ticket = item
        if isinstance(fact, RunRecovered):
            self._crashed(step)
        if step != self._last_step:
            self._last_step, self._was_taken_step = step, False
        self._was_taken_step |= not isinstance(fact, _OF_CALLS)
        match fact:
            case Enqueued(ref, work, exit_depth):
                if ticket is not None:
                    self._taken.add(ticket)
                if work is WorkKey.DECODE_CODA and exit_depth is not None:
                    name = self._names[ref]
                    self._exits[name][self._codas[name]] = exit_depth
                    self._coda_due.add(ref)
            case Selected(ref) if ref in self._coda_due:
                self._coda_due.discard(ref)
                self._codas[self._names[ref]] += 1
            case BatchFailed() if step == self._recovered_step:
                pass  # lost in the crash: it never landed
            case BatchCompleted() | BatchFailed():
                assert ticket is not None, "a ticket fact names its ticket"
                error = fact.reason if isinstance(fact, BatchFailed) else None
                self._landings[ticket] = Landed(self._last_step, error, ticket in self._taken)
                if error is not None:
                    self._failures[self._last_step] = error.rpartition("kind=")[2]
            case OutputSampled(ref, idx, token_id, exit_depth, logprob, note):
                name = self._names[ref]
                self._answers[name].append(Answer(token_id, logprob, note))
                self._exits[name].setdefault(idx, exit_depth)
            case VerdictGiven():
                self._has_verdicts = True
            case _:
                self._read_rare(fact)

    def _read_rare(self, fact: Fact) -> None:
        step = self._last_step
        match fact:
            case Submitted(ref, spec) | Refused(ref, spec):
                name = self._names[ref] = spec.request_id, spec.generation
                self._answers[name], self._exits[name], self._codas[name] = [], {}, 0
                self._calls.append(Added(step, ref, spec))
            case Aborted(ref):
                self._calls.append(AbortCalled(step, ref, self._names[ref]))
            case Rewound(ref):
                self._coda_due.discard(ref)
                name = self._names[ref]
                self._codas[name] = len(self._answers[name])  # one that a crash took runs again
            case RunOpened():
                self._opened = fact
            case RunClosed(outcome):
                self._outcome = outcome
                if outcome == Outcome.CLOSED:
                    self._leave_out_closing_aborts()
            case _:
                pass

    def _crashed(self, step: int) -> None:
        """A recovery takes a step of its own, after the one that the crash broke off: whether that
        one was taken, or something was only called before it, shows in its events.
        """
        self._calls.append(Crashed(step if self._was_taken_step else self._last_step))
        self._recovered_step = step

    def _leave_out_closing_aborts(self) -> None:
        """`close` aborts who is live, in the order of refs; nobody called for these."""
        ref: float = float("inf")
        while self._calls and isinstance(call := self._calls[-1], AbortCalled):
            if call.step != self._last_step or call.ref > ref:
                break
            ref = call.ref
            self._calls.pop()

    def record(self, model_name: str, workload: str | None) -> Record:
        """What was gathered."""
        if self._opened is None:
            raise LogError(f"{self._place} does not begin with `open`")
        return Record(
            config=self._opened.config,
            model=msgspec.structs.replace(self._opened.model, name=model_name),
            workload=workload,
            calls=tuple(self._calls),
            answers=self._answers,
            exits=self._exits,
            failures=self._failures,
            landings=self._landings,
            has_verdicts=self._has_verdicts,
            last_step=self._last_step,
            outcome=self._outcome,
            fallback=self._opened.reason,
        )
