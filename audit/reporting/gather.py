"""One reading of a run: who was where in each step, every batch and its rows, every output.

What a row cannot tell is left out and counted. Rows of batches are nearly all events, so they have
a way of their own; everything else that happens to a request takes the general one.
"""

from collections.abc import Callable
from typing import Final

from audit.facts import FinishData, SubmitData, decode
from audit.fold import UNREADABLE
from audit.legality import Move
from audit.reader import (
    EXTRA,
    MOVE,
    REF,
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
from audit.timeline import tell, told
from audit.waits import ADMISSION, ENDS_WAIT, begins
from rlt_fsm.machines import HELD
from rlt_fsm.states import RequestStatus
from rlt_fsm.wording import counted

from . import kinds
from .gather_batches import Batches
from .gathered import NO_NUMBER, Gathered, States

Handler = Callable[[Event], None]
Progress = Callable[[int, int], None]  # (events read, events there are)

PREEMPTIONS: Final = frozenset({"yield", "offload", "rewind"})
ARRIVALS: Final = frozenset({"submit", "submit_remote", "refuse"})
ENDS: Final = {"abort": "abort", "transfer_done": "transferred", "refuse": "refused"}
WAITING: Final = RequestStatus.WAITING.value
STUMBLES: Final = (*UNREADABLE, OverflowError, AttributeError)


def gather(run: RunLog, progress: Progress | None = None) -> Gathered:
    """Read a run to its end."""
    gathered = Gathered(run)
    reader = _Reader(gathered)
    for chunk in run.chunks():
        for event in zip(*chunk, strict=True):
            reader.take(event)  # type: ignore[arg-type]  # rows of this shape (`reader.Event`)
        if progress is not None:
            progress(chunk[SEQ][-1], run.info.last_seq)
    reader.end()
    return gathered


class _Reader:
    """Follows each request's states from event to event and fills the tables."""

    def __init__(self, into: Gathered) -> None:
        self._into = into
        self._run = into.run
        self._handlers: dict[int, Handler] = {}
        self._column = -1
        self._step: int | None = None
        self._place: dict[int, int] = {}  # ref → its row in `requests`
        self._states: dict[int, States] = {}
        self._kind: dict[int, int] = {}  # ref → what it is unless it is in a batch
        self._in_batch: dict[int, int] = {}  # ref → what its row in this step makes it
        self._left_batch: set[int] = set()  # refs of the last step's rows
        self._touched: set[int] = set()
        self._told_kind: dict[int, int] = {}
        self._told_states: dict[int, tuple[str, str, str]] = {}
        self._batches = Batches(into)
        self._since: dict[int, tuple[bool, int]] = {}  # ref → (for admission, first step waited)
        self._depth = dict.fromkeys(kinds.KEYS, 0)
        self._waiting: set[int] = set()
        self._held: set[int] = set()

    def take(self, event: Event) -> None:
        """The next event."""
        if event[STEP] != self._step:
            self._end_step()
            self._step = event[STEP]
            self._column += 1
        handler = self._handlers.get(event[MOVE])
        if handler is None:
            handler = self._handlers[event[MOVE]] = self._handler(self._run.moves.get(event[MOVE]))
        try:
            handler(event)
        except STUMBLES:
            self._into.unread += 1

    def end(self) -> None:
        """The last step has ended; who waits then has waited until its end."""
        self._end_step()
        for ref, (for_admission, first) in self._since.items():
            self._add_wait(ref, (self._step or 0) + 1 - first, for_admission=for_admission)

    def _handler(self, move: Move | None) -> Handler:
        if move is None:
            return self._unknown
        own: dict[str, Handler] = {
            "submit_batch": lambda event: self._batches.submitted(event, self._column),
            "complete_batch": self._batches.settled("completed_seq"),
            "retire_batch": self._batches.settled("retired_seq"),
            "output": self._output,
        }
        if move.trigger == "select" and move.work is not None:
            return self._selected(*move.work)
        if move.trigger == "enqueue" and move.work is not None:
            return self._enqueued(*move.work)
        if move.trigger in own:
            return own[move.trigger]
        return self._moved(move) if move.is_of_request else lambda _: None

    def _unknown(self, event: Event) -> None:
        del event
        self._into.unread += 1

    # ---- batches and their rows ----------------------------------------------------------------

    def _selected(self, source: str, dest: str) -> Handler:
        key, queue = dest.partition(":")[2], source.partition(":")[2]
        kind = kinds.FIRST_KEY + kinds.KEYS.index(key) if key in kinds.KEYS else kinds.IN_FLIGHT
        work = self._into.names.number(key)
        add, idle_steps = self._into.rows.add, self._into.idle_steps
        number = self._batches.number

        def selected(event: Event) -> None:
            ref, depth = event[REF], event[D]
            depth = NO_NUMBER if depth is None else int(depth)
            batch = number(event[TICKET], self._column)
            add(ref, batch, event[A], work, event[B], event[C], depth, event[E])
            self._in_batch[ref] = kinds.REPLAYED if event[E] else kind
            self._kind[ref] = kinds.IN_FLIGHT
            self._touched.add(ref)
            self._depth[queue] -= 1
            self._states[ref] = self._states[ref]._replace(work=dest)
            since = self._since.pop(ref, None)
            if since is not None:
                steps = max(0, event[STEP] - since[1])
                idle_steps[steps] += 1
                self._add_wait(ref, steps, for_admission=False)

        return selected

    def _enqueued(self, source: str, dest: str) -> Handler:
        del source
        key = dest.partition(":")[2]

        def enqueued(event: Event) -> None:
            ref = event[REF]
            self._states[ref] = self._states[ref]._replace(work=dest)
            self._kind[ref] = kinds.QUEUED
            self._touched.add(ref)
            self._depth[key] += 1
            self._since[ref] = (False, event[STEP] + 1)

        return enqueued

    def _output(self, event: Event) -> None:
        ref, requests = event[REF], self._into.requests
        self._into.outputs.add(ref, self._column, event[A], event[B], event[C], event[SEQ])
        place = self._place_of(ref, event)
        requests["outputs"][place] += 1
        if requests["first_output"][place] == NO_NUMBER:
            requests["first_output"][place] = self._column

    # ---- everything else that happens to a request ---------------------------------------------

    def _moved(self, move: Move) -> Handler:
        number = self._into.names.number(move.trigger)

        def moved(event: Event) -> None:
            ref = event[REF]
            place = self._place_of(ref, event)
            self._follow(ref, move)
            self._wait(event, move)
            self._count(place, event, move.trigger)
            self._note(place, event, move, number)

        return moved

    def _follow(self, ref: int, move: Move) -> None:
        before = self._states.get(ref, States())
        edges = zip(move.edges, before, strict=True)
        after = States(*(state if edge is None else edge[1] for edge, state in edges))
        self._states[ref] = after
        if move.work is not None:
            for state, change in ((move.work[0], -1), (move.work[1], 1)):
                if state.startswith("QUEUED:"):
                    self._depth[state.partition(":")[2]] += change
        (self._waiting.add if after.status == WAITING else self._waiting.discard)(ref)
        (self._held.add if after.slot == HELD else self._held.discard)(ref)
        was_admitted = self._kind.get(ref, kinds.GONE) not in (kinds.GONE, kinds.WAITING)
        self._kind[ref] = kinds.kind_of(
            after.status, after.work, after.kv, was_admitted=was_admitted
        )
        self._touched.add(ref)

    def _place_of(self, ref: int, event: Event) -> int:
        place = self._place.get(ref)
        if place is None:
            requests = self._into.requests
            place = self._place[ref] = len(requests["ref"])
            requests.add(ref, self._column, event[SEQ], *[NO_NUMBER] * 2, *[0] * 7)
        return place

    def _count(self, place: int, event: Event, trigger: str) -> None:
        requests = self._into.requests
        if trigger in ARRIVALS:
            data = decode(event[EXTRA], SubmitData)
            requests["prompt_len"][place] = len(data.prompt_token_ids)
            requests["max_tokens"][place] = data.params.max_tokens
            requests["priority"][place] = data.params.priority
        elif trigger in PREEMPTIONS:
            requests["preemptions"][place] += 1
        if trigger == "finish" or trigger in ENDS:
            requests["ended"][place] = self._column
            is_told = trigger in ENDS
            self._into.ends[event[REF]] = (
                ENDS[trigger] if is_told else decode(event[EXTRA], FinishData).finish_reason
            )

    def _note(self, place: int, event: Event, move: Move, trigger: int) -> None:
        into = self._into
        if move.trigger == "finish":
            given = counted(into.requests["outputs"][place], "output")
            text = f"finished with `{into.ends[event[REF]]}` after {given}"
        elif move.trigger in ("submit", "submit_remote"):
            row = self._run.requests[event[REF]]
            text = tell(self._run, row, [event], last_step=event[STEP]).entries[0].what
        else:
            text = told(event, move)
        into.notes.add(event[REF], self._column, event[SEQ], trigger, into.texts.number(text))

    def _wait(self, event: Event, move: Move) -> None:
        ref = event[REF]
        if move.trigger in ENDS_WAIT and (pair := self._since.pop(ref, None)) is not None:
            self._add_wait(ref, max(0, event[STEP] - pair[1]), for_admission=pair[0])
        if (since := begins(move, event[SEQ], event[STEP])) is not None:
            self._since[ref] = (since.work == ADMISSION, since.first_step)

    def _add_wait(self, ref: int, steps: int, *, for_admission: bool) -> None:
        column = "waited" if for_admission else "idled"
        self._into.requests[column][self._place[ref]] += steps

    # ---- a step has ended ----------------------------------------------------------------------

    def _end_step(self) -> None:
        if self._step is None:
            return
        into = self._into
        into.steps.append(self._step)
        into.waiting.append(len(self._waiting))
        into.held.append(len(self._held))
        for key, column in into.queued.items():
            column.append(self._depth[key])
        for ref in sorted(self._touched | self._left_batch):
            kind = self._in_batch.get(ref, self._kind.get(ref, kinds.GONE))
            if kind != self._told_kind.get(ref):
                self._told_kind[ref] = kind
                into.lanes.add(ref, self._column, kind)
            states = self._states.get(ref, States())
            slow = (states.status, states.slot, states.kv)
            if slow != self._told_states.get(ref):
                self._told_states[ref] = slow
                into.machines.add(ref, self._column, *map(into.names.number, slow))
        self._left_batch = set(self._in_batch)
        self._in_batch.clear()
        self._touched.clear()
