"""A request's life as its events tell it, one entry for each, in words.

Reads the request's own events alone; why it waited when it did is `explain`'s.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from rlt_fsm.log.port import RequestRow
from rlt_fsm.machines import NULL
from rlt_fsm.states import FinishReason, WorkKey
from rlt_fsm.wording import counted

from .facts import BlockData, FinishData, PreemptionData, SubmitData, decode
from .fold import UNREADABLE
from .legality import Edge, Move
from .reader import (
    BLOCKS,
    CAUSE,
    EXTRA,
    MOVE,
    REASON,
    SEQ,
    STEP,
    TICKET,
    A,
    B,
    C,
    D,
    E,
    Event,
    RunLog,
)
from .replay import Replay
from .request_names import find_request, name_of
from .waits import ENDS_WAIT, Since, begins, waited
from .words import REFUSALS, REWINDS, VERDICTS, in_words

PASSED_OVER: Final = "passed over: "


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a request. `waited` is in steps, on the event that ended a wait, else None."""

    seq: int
    step: int
    trigger: str
    what: str
    moved: str
    waited: int | None
    ticket: int | None
    cause: int | None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A request's wait from one event to another; `steps` are those that went by without it.

    `work` is what it waited to do: `admission`, or the key of its pending work. `until_…` are None
    where it still waits when the log ends.
    """

    work: str
    since_seq: int
    since_step: int
    until_seq: int | None
    until_step: int | None
    steps: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One request's life in a run."""

    run_id: int
    request: str
    ref: int
    entries: list[Entry]
    waits: list[Wait]

    @property
    def waited(self) -> int:
        """Steps that it waited in all."""
        return sum(wait.steps for wait in self.waits)


def timeline(replay: Replay, request: str) -> Timeline:
    """The life of the request named `ID` or `ID#generation`.

    Raises:
        LogError: the run has no such request, or the log cannot be read.
    """
    row = find_request(replay.run, request)
    return tell(replay.run, row, replay.events([row.ref]), last_step=replay.last_step)


def tell(run: RunLog, row: RequestRow, events: Iterable[Event], *, last_step: int) -> Timeline:
    """A request's life from its events; `last_step` is the run's."""
    teller = _Teller(run)
    entries = [teller.entry(event) for event in events]
    return Timeline(
        run_id=run.info.run_id,
        request=name_of(row),
        ref=row.ref,
        entries=entries,
        waits=teller.waits(last_step),
    )


class _Teller:
    """Goes through one request's events and keeps what the next ones are told with."""

    def __init__(self, run: RunLog) -> None:
        self._run = run
        self._waits: list[Wait] = []
        self._since: Since | None = None
        self._outputs = 0
        self._prompt_len = 0

    def waits(self, last_step: int) -> list[Wait]:
        """The waits that took at least one step, in order; the last may still go on."""
        since = self._since
        if since is None or last_step < since.first_step:
            return self._waits
        still = Wait(
            work=since.work, since_seq=since.seq, since_step=since.step, until_seq=None,
            until_step=None, steps=last_step - since.first_step + 1,
        )  # fmt: skip
        return [*self._waits, still]

    def entry(self, event: Event) -> Entry:
        """One event in words."""
        move = self._run.moves.get(event[MOVE])
        if move is None:
            move = Move("?", None, None, None, None)
        waited = self._end_wait(event, move)
        try:
            what = self._what(event, move)
        except UNREADABLE as error:
            what = f"`{move.trigger}`, which cannot be read: {error}"
        self._begin_wait(event, move)
        return Entry(
            seq=event[SEQ],
            step=event[STEP],
            trigger=move.trigger,
            what=what,
            moved="  ".join(_edge(edge) for edge in move.edges if edge is not None),
            waited=waited,
            ticket=event[TICKET],
            cause=event[CAUSE],
        )

    # ---- waiting -----------------------------------------------------------------------------

    def _begin_wait(self, event: Event, move: Move) -> None:
        self._since = begins(move, event[SEQ], event[STEP]) or self._since

    def _end_wait(self, event: Event, move: Move) -> int | None:
        since = self._since
        if since is None or move.trigger not in ENDS_WAIT:
            return None
        self._since = None
        steps = waited(since, event[STEP])
        if steps:
            self._waits.append(
                Wait(
                    work=since.work, since_seq=since.seq, since_step=since.step,
                    until_seq=event[SEQ], until_step=event[STEP], steps=steps,
                )
            )  # fmt: skip
        return steps

    # ---- words -------------------------------------------------------------------------------

    def _what(self, event: Event, move: Move) -> str:
        tellers: dict[str, Callable[[Event], str]] = {
            "submit": self._submitted,
            "submit_remote": self._submitted,
            "output": self._output,
            "finish": self._finished,
        }
        if move.trigger in tellers:
            return tellers[move.trigger](event)
        if move.trigger == "select":
            return _row(event, move)
        if move.trigger == "enqueue" and move.work is not None:
            key = move.work[1].partition(":")[2]
            return f"{key} is next" + (f", {event[A]} loops were run" if event[A] else "")
        return told(event, move)

    def _submitted(self, event: Event) -> str:
        data = decode(event[EXTRA], SubmitData)
        self._prompt_len = len(data.prompt_token_ids)
        priority = f", priority {data.params.priority}" if data.params.priority else ""
        prompt = counted(self._prompt_len, "prompt token")
        return f"submitted: {prompt}, at most {counted(data.params.max_tokens, 'output')}{priority}"

    def _output(self, event: Event) -> str:
        self._outputs += 1
        return f"output {event[A]}: token {event[B]}, exit depth {event[C]}"

    def _finished(self, event: Event) -> str:
        reason = decode(event[EXTRA], FinishData).finish_reason
        why = {
            FinishReason.STOP.value: "it met a stop token",
            FinishReason.LENGTH.value: "it has all its outputs",
            FinishReason.ERROR.value: "the device failed its batch",
        }.get(reason)
        told = f" ({why})" if why else ""
        return f"finished with `{reason}`{told} after {counted(self._outputs, 'output')}"


def _row(event: Event, move: Move) -> str:
    """A row of a batch."""
    key = move.work[1].partition(":")[2] if move.work is not None else ""
    start, count, depth = event[B], event[C], event[D]
    place = f"row {event[A]} of ticket {event[TICKET]}"
    if key in (WorkKey.DECODE_PRELUDE, WorkKey.DECODE_CODA):
        tokens = f"position {start}"
    elif key == WorkKey.DECODE_RECURRENT:
        tokens = f"position {start}, loop {int(depth or 0) + 1}"
    else:
        is_one = count == 1
        tokens = f"position {start}" if is_one else f"positions {start} to {start + count - 1}"
        tokens += "" if depth is None else f", loop {int(depth) + 1}"
    return f"{place}: {key}, {tokens}{', computed again' if event[E] else ''}"


def told(event: Event, move: Move) -> str:
    """Events that tell blocks, or a reason."""
    data, reason, has = decode(event[EXTRA], BlockData), event[REASON], event[BLOCKS]
    taken, dropped = counted(len(data.take), "block"), counted(len(data.drop), "block")
    tells_blocks = has is not None  # a log of another engine may not
    row = "" if data.state_row is None else f", state row {data.state_row}"
    for_whom = decode(event[EXTRA], PreemptionData).for_whom
    whom = "" if for_whom is None else f" for {_name(for_whom)}"
    match move.trigger:
        case "refuse":
            return f"refused: {in_words(reason, REFUSALS)}"
        case "admit":
            shared = f", {len(data.share)} of a cached prefix shared" if data.share else ""
            cached = f", {data.cached_tokens} tokens need no computing" if shared else ""
            own = f", {taken} taken" if tells_blocks else ""
            return f"admitted{row}{own}{shared}{cached}"
        case "resume":
            back = f", {taken} taken for what was on the host" if data.take else ""
            return f"went on{row}{back}"
        case "grow":
            return f"took {taken} more, has {has}"
        case "yield":
            kept = f"; it kept its {counted(has, 'block')}" if tells_blocks else ""
            return f"gave its slot up{whom}{kept}"
        case "offload":
            return f"gave its slot and {dropped} up{whom}; its KV went to the host"
        case "offload_resident":
            return f"gave {dropped} up{whom}; its KV went to the host"
        case "rewind":
            return f"lost its KV and {dropped}{whom}, to be computed again: " + in_words(
                reason, REWINDS
            )
        case "abort":
            return "aborted"
        case "retire":
            return f"retired, {dropped} given back" if tells_blocks else "retired"
        case "verdict":
            return PASSED_OVER + in_words(reason, VERDICTS)
        case "drop":
            return f"a late result was dropped: `{reason}`"
        case "publish":
            return f"{counted(len(data.publish), 'block')} of its prompt joined the prefix cache"
        case "evict":
            return f"{counted(len(data.evict), 'block')} left the prefix cache for it"
        case _:
            return f"`{move.trigger}`" + (f": {reason}" if reason else "")


def _name(text: str) -> str:
    """`id#1`, as the log writes it, is the first use of `id`."""
    return text.removesuffix("#1")


def _edge(edge: Edge) -> str:
    assert edge is not None
    return "→".join("·" if state == NULL else state for state in edge)
