"""Why a request did, or did not, run at a step; or, over its life, where it waited and why.

The answer is sentences with numbers, each from recorded facts: verdicts, reasons of batches, the
state at that step, and what changed before the request went on. Nothing is guessed: where the log
does not tell, the answer says so.
"""

from typing import Final

import msgspec

from rlt_fsm.errors import LogError
from rlt_fsm.states import RequestStatus
from rlt_fsm.wording import counted

from .obstacles import Obstacles, because
from .replay import Replay
from .request_names import find_request, name_of
from .run_state import RunState
from .timeline import Entry, Timeline, Wait, tell
from .waits import ADMISSION
from .words import joined

MAX_WAITS: Final = 3  # of those that are listed
ACTIVE = RequestStatus.ACTIVE.value


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `step` is the one that was asked for, None for the whole life; `ran` tells whether
    the request was in a batch of that step. `waits` are the longest ones, the longest first.
    """

    run_id: int
    request: str
    step: int | None
    ran: bool | None
    sentences: list[str]
    waits: list[Wait]


def explain(replay: Replay, request: str, step: int | None = None) -> Explanation:
    """Answer for the request named `ID` or `ID#generation`.

    Raises:
        LogError: the run has no such request or step, or the log cannot be read.
    """
    row = find_request(replay.run, request)
    life = tell(replay.run, row, replay.events([row.ref]), last_step=replay.last_step)
    if not life.entries:
        raise LogError(f"run {life.run_id} names {life.request}, but has no event of it")
    answer = _Answer(replay, life)
    ran = None
    if step is None:
        answer.whole_life()
    else:
        ran = answer.one_step(step)
    return Explanation(
        run_id=life.run_id,
        request=name_of(row),
        step=step,
        ran=ran,
        sentences=answer.sentences,
        waits=_longest(life.waits),
    )


def _longest(waits: list[Wait]) -> list[Wait]:
    return sorted(waits, key=lambda wait: (-wait.steps, wait.since_seq))[:MAX_WAITS]


class _Answer:
    """The sentences of one answer, as they come."""

    def __init__(self, replay: Replay, life: Timeline) -> None:
        self._replay = replay
        self._life = life
        self._obstacles = Obstacles(replay, life)
        self.sentences: list[str] = []

    def _say(self, *sentences: str) -> None:
        self.sentences += [sentence for sentence in sentences if sentence]

    # ---- a whole life ------------------------------------------------------------------------

    def whole_life(self) -> None:
        """How it went, and the longest wait in detail."""
        life, name = self._life, self._life.request
        first = life.entries[0]
        if first.trigger == "refuse":
            self._say(f"{name} was {first.what} (step {first.step}); it never waited.")
            return
        self._say(self._summary())
        longest = _longest(life.waits)
        if not longest:
            self._say("It never waited: it was in a batch in every step in which it could be.")
            return
        self._wait_in_detail(longest[0])
        others = [f"{counted(w.steps, 'step')} {_for_what(w)} from step {w.since_step}"
                  for w in longest[1:]]  # fmt: skip
        if others:
            self._say(f"Its next longest waits: {joined(others)}.")

    def _summary(self) -> str:
        life = self._life
        first, last = life.entries[0], life.entries[-1]
        ends = [entry for entry in life.entries if entry.trigger in ("finish", "abort")]
        ran = len({entry.step for entry in life.entries if entry.trigger == "select"})
        if ends:
            end = f"{ends[0].what} in step {ends[0].step}"
        else:
            end = f"was still there when the log ended (its last event is in step {last.step})"
        was = "was " if ends and ends[0].trigger == "abort" else ""
        took = counted(ran, "step")
        return (
            f"{life.request} came in step {first.step} ({_facts(first)}) and {was}{end}. It was in "
            f"a batch in {took} and waited in {life.waited:,}."
        )

    def _wait_in_detail(self, wait: Wait) -> None:
        until = "the end of the log" if wait.until_step is None else f"step {wait.until_step}"
        self._say(
            f"It waited longest {_for_what(wait)}: {counted(wait.steps, 'step')}, from step "
            f"{wait.since_step} to {until}."
        )
        self._why(wait, self._replay.at(seq=self._obstacles.telling_seq(wait)))

    def _why(self, wait: Wait, state: RunState) -> None:
        self._say(self._obstacles.how_it_began(wait), self._obstacles.lost_since(wait))
        if wait.work == ADMISSION:
            self._say(*self._obstacles.of_admission(wait, state))
        else:
            self._say(*self._obstacles.of_batch(wait))
        self._say(self._obstacles.what_changed(wait))

    # ---- one step ----------------------------------------------------------------------------

    def one_step(self, step: int) -> bool:
        """What it did in a step, and why not more; tells whether it was in a batch."""
        life, name = self._life, self._life.request
        last_seq = self._replay.last_seq_of(step)
        first, here = life.entries[0], [e for e in life.entries if e.step == step]
        rows = [entry for entry in here if entry.trigger == "select"]
        if first.trigger == "refuse":
            self._say(f"{name} never ran: it was {first.what} in step {first.step}.")
        elif first.step > step:
            self._say(f"{name} was not there yet in step {step}: it came in step {first.step}.")
        elif rows:
            self._ran(rows)
        elif over := self._end_before(last_seq):
            self._say(f"{name} did not run in step {step}: it had {over.what} in step {over.step}.")
        else:
            self._did_not_run(step, last_seq)
        return bool(rows)

    def _end_before(self, seq: int) -> Entry | None:
        ends = ("finish", "abort", "retire")
        return next((e for e in self._life.entries if e.trigger in ends and e.seq <= seq), None)

    def _ran(self, rows: list[Entry]) -> None:
        row = rows[0]
        self._say(f"{self._life.request} ran in step {row.step}: {row.what}.")
        batch = self._obstacles.batch_of(row)
        if batch is not None:
            works = " and ".join(batch.works)
            size = f"{counted(batch.rows, 'row')}, {counted(batch.tokens, 'token')}"
            self._say(f"Ticket {batch.ticket} ran {works} ({size}){because(batch.reason)}.")
        if row.waited:
            wait = next((w for w in self._life.waits if w.until_seq == row.seq), None)
            self._say(f"It had waited {counted(row.waited, 'step')} for that.")
            if wait is not None:
                self._say(*self._obstacles.of_batch(wait))

    def _did_not_run(self, step: int, last_seq: int) -> None:
        name, state = self._life.request, self._replay.at(seq=last_seq)
        wait = next((w for w in self._life.waits if _covers(w, last_seq)), None)
        request = state.requests.get(self._life.ref)
        if request is None or wait is None:
            self._say(f"{name} did not run in step {step}; the log does not tell why.")
            return
        since = f"since step {wait.since_step}"
        is_waiting = wait.work == ADMISSION
        what = f"it was {request.status}" if is_waiting else f"its {wait.work} was queued"
        self._say(f"{name} did not run in step {step}: {what} {since}.")
        self._why(wait, state)


def _covers(wait: Wait, seq: int) -> bool:
    return wait.since_seq <= seq and (wait.until_seq is None or seq < wait.until_seq)


def _for_what(wait: Wait) -> str:
    return "to be admitted" if wait.work == ADMISSION else f"with {wait.work} queued"


def _facts(first: Entry) -> str:
    return first.what.partition(": ")[2] or first.what
