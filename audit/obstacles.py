"""What stood in a request's way while it waited, and what had changed when it went on: sentences
with numbers, from verdicts, reasons of batches, and the state of the others.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from rlt_fsm.wording import counted

from .facts import BatchData, decode
from .fold import UNREADABLE
from .reader import EXTRA, MOVE, REASON, REF, STEP, TICKET, Event
from .replay import Replay
from .request_names import name_of
from .request_state import RequestState
from .run_state import RunState
from .timeline import PASSED_OVER, Entry, Timeline, Wait, told
from .waits import ADMISSION
from .words import BATCHES, in_words, joined, number, parsed

MAX_NAMES: Final = 6
MAX_CHANGES: Final = 4
RELEASES: Final = frozenset(
    {"retire", "yield", "offload", "offload_resident", "rewind", "evict", "staged"}
)


class Batch(msgspec.Struct, frozen=True):
    """A batch that was submitted."""

    ticket: int
    step: int
    works: tuple[str, ...]
    rows: int
    tokens: int
    reason: str | None


class Obstacles:
    """Looks for them in one run, for one request."""

    def __init__(self, replay: Replay, life: Timeline) -> None:
        self._replay = replay
        self._life = life

    # ---- verdicts ----------------------------------------------------------------------------

    def _verdicts(self, wait: Wait) -> list[Entry]:
        return [e for e in self._within(wait) if e.trigger == "verdict"]

    def _within(self, wait: Wait) -> Iterator[Entry]:
        until = self._replay.last_seq if wait.until_seq is None else wait.until_seq
        return (e for e in self._life.entries if wait.since_seq < e.seq < until)

    def telling_seq(self, wait: Wait) -> int:
        """Where to look at the others: at the verdict that stood longest, or when it began."""
        verdicts = self._verdicts(wait)
        if not verdicts:
            end = self._replay.last_seq_of(wait.since_step)
            return end if wait.until_seq is None else min(end, wait.until_seq - 1)
        until = self._replay.last_step if wait.until_step is None else wait.until_step
        ends = [*(entry.step for entry in verdicts[1:]), until]
        stood = [end - entry.step for entry, end in zip(verdicts, ends, strict=True)]
        return verdicts[stood.index(max(stood))].seq

    # ---- admission ---------------------------------------------------------------------------

    def of_admission(self, wait: Wait, state: RunState) -> list[str]:
        """Why it was not admitted; `state` is that of the moment to look at."""
        request = state.requests.get(self._life.ref)
        if request is None:
            return []
        verdicts = [entry for entry in self._verdicts(wait) if entry.seq <= state.seq]
        told_last = verdicts[-1] if verdicts else None
        return [
            *self._recorded(told_last, request, state),
            *([] if told_last else self._meanwhile(wait)),
            *self._in_line(request, state),
            self._slots(state),
            self._blocks(request, state, told_last),
        ]

    def _recorded(self, verdict: Entry | None, request: RequestState, state: RunState) -> list[str]:
        if verdict is not None:
            return [f"It was passed over, as recorded in step {verdict.step}: {_why(verdict)}."]
        limit = state.config.scheduler.admission_scan_limit
        place = [waiting.ref for waiting in state.waiting].index(request.ref)
        if limit is not None and place >= limit:
            most = f"admission looks at the first {limit} (admission_scan_limit)"
            return [f"It was number {place + 1} in line, and {most}."]
        is_told = not self._replay.run.is_foreign
        so = ": admission did not come to it" if is_told else ""
        return [f"No verdict on it is recorded up to then{so}."]

    def _in_line(self, request: RequestState, state: RunState) -> list[str]:
        ahead = [w for w in state.waiting if w.order_key < request.order_key]
        said = []
        if ahead:
            are = "was" if len(ahead) == 1 else "were"
            names = joined((w.name for w in ahead), most=MAX_NAMES)
            said.append(f"{counted(len(ahead), 'request')} {are} before it in line: {names}.")
        if request.bypasses:
            limit = state.config.scheduler.max_admission_bypasses
            of = "" if limit is None else f" (max_admission_bypasses is {limit})"
            times = counted(request.bypasses, "request")
            said.append(f"{times} that came after it had been admitted before it{of}.")
        return said

    def _slots(self, state: RunState) -> str:
        holders, total = state.slot_holders, state.slots
        was = "was" if len(holders) == 1 else "were"
        if total is None:
            return f"{counted(len(holders), 'slot')} {was} held."
        if len(holders) < total:
            free = total - len(holders)
            return f"{len(holders)} of {total} slots {was} held; {free} {_were(free)} free."
        by = joined((f"{r.name} (since step {r.seated_step})" for r in holders), most=MAX_NAMES)
        which = "The one slot" if total == 1 else f"All {total} slots"
        return f"{which} {was} held, by {by}."

    def _blocks(self, request: RequestState, state: RunState, verdict: Entry | None) -> str:
        total = state.cache.num_blocks
        if total is None:
            return ""
        free, cached = len(state.free_blocks), len(state.prefix_only)
        reason = self._reason(verdict)
        need = number(reason, "need") if parsed(reason or "")[0] == "blocks" else None
        need = self._need(request, state) if need is None else need
        kept = f" and {cached} kept by the prefix cache alone" if cached else ""
        held = joined((f"{r.name} held {r.blocks}" for r in state.block_holders), most=MAX_NAMES)
        rest = f"; {held}" if held else ""
        if need is None:
            return f"Of {total} blocks {free} were free{kept}{rest}."
        enough = ", enough" if need <= free else ""
        return (
            f"It needed {counted(need, 'block')}; of {total} blocks {free} were free{kept}"
            f"{enough}{rest}."
        )

    def _reason(self, verdict: Entry | None) -> str | None:
        event = None if verdict is None else self._replay.run.first_after(verdict.seq - 1)
        return None if event is None else event[REASON]

    def _need(self, request: RequestState, state: RunState) -> int | None:
        """The blocks that it must find, where that is plain."""
        if state.model is None or request.kv == "RESIDENT":
            return None
        last = request.prompt_len + request.params.max_tokens - 1
        if request.kv == "OFFLOADED":  # what is on the host, and its next token
            next_token = request.prefill_tokens
            if not request.is_replaying:
                next_token += len(request.outputs)
            return max(request.host_blocks, _blocks_of(min(next_token, last), state))
        return None if state.cache.incremental_allocation else _blocks_of(last, state)

    # ---- batches -----------------------------------------------------------------------------

    def of_batch(self, wait: Wait) -> list[str]:
        """What ran while its work was queued."""
        left_out = [
            f"A batch left it out in step {verdict.step}: {_why(verdict)}."
            for verdict in self._verdicts(wait)[:MAX_CHANGES]
        ]
        return [*left_out, *self._meanwhile(wait)]

    def _meanwhile(self, wait: Wait) -> list[str]:
        until = self._replay.last_seq if wait.until_seq is None else wait.until_seq - 1
        batches = list(self._batches(wait.since_seq, until))
        if not batches:
            return ["No batch ran meanwhile."]
        kinds = Counter(("+".join(b.works), because(b.reason)) for b in batches)
        ran = joined(
            (f"{count} of {works}{why}" for (works, why), count in kinds.most_common()),
            most=MAX_NAMES,
        )
        own = sum(1 for b in batches if wait.work in b.works)
        without = f" {own} of them had its key, without it." if own else ""
        return [f"Meanwhile {counted(len(batches), 'batch')} ran: {ran}.{without}"]

    def batch_of(self, row: Entry) -> Batch | None:
        """The batch of one of its rows."""
        until = self._replay.last_seq_of(row.step)
        found = (b for b in self._batches(row.seq, until) if b.ticket == row.ticket)
        return next(found, None)

    def _batches(self, after_seq: int, until_seq: int) -> Iterator[Batch]:
        run = self._replay.run
        moves = {n for n, move in run.moves.items() if move.trigger == "submit_batch"}
        for event in run.select(moves=moves, after_seq=after_seq, until_seq=until_seq):
            try:
                data = decode(event[EXTRA], BatchData)
            except UNREADABLE:
                continue
            yield Batch(
                event[TICKET], event[STEP], data.works, data.rows, data.tokens, event[REASON]
            )

    # ---- what changed ------------------------------------------------------------------------

    def how_it_began(self, wait: Wait) -> str:
        """What it lost to others, if that is why it waits."""
        began = next(e for e in self._life.entries if e.seq == wait.since_seq)
        if began.trigger not in RELEASES:
            return ""
        return f"In step {began.step} it {began.what}."

    def lost_since(self, wait: Wait) -> str:
        """What it gave up while it waited already."""
        lost = [e for e in self._within(wait) if e.trigger in ("offload_resident", "rewind")]
        return " ".join(f"In step {entry.step} it {entry.what}." for entry in lost[-MAX_CHANGES:])

    def what_changed(self, wait: Wait) -> str:
        """How the wait ended, and what had been given back before."""
        if wait.until_seq is None:
            return "It still waits when the log ends."
        end = next(e for e in self._life.entries if e.seq == wait.until_seq)
        if end.trigger == "abort":
            return f"It was aborted in step {end.step}."
        if wait.work != ADMISSION:
            return self._went_on(end)
        changes = self._changes(wait)
        after = f", after {joined(changes)}" if changes else ""
        was = "was " if end.trigger == "admit" else ""
        return f"In step {end.step} it {was}{end.what}{after}."

    def _went_on(self, end: Entry) -> str:
        batch = self.batch_of(end) if end.trigger == "select" else None
        if batch is None:
            return f"In step {end.step}: {end.what}."
        why = because(batch.reason)
        ran = f"; that batch ran{why}" if why else ""
        return f"It went on in step {end.step}, {end.what}{ran}."

    def _changes(self, wait: Wait) -> list[str]:
        """What others gave back between the last verdict on it and its admission."""
        run, verdicts = self._replay.run, self._verdicts(wait)
        since = verdicts[-1].seq if verdicts else wait.since_seq
        moves = {n for n, move in run.moves.items() if move.trigger in RELEASES}
        events = list(run.select(moves=moves, after_seq=since, until_seq=wait.until_seq))
        return [self._change(event) for event in events[-MAX_CHANGES:]]

    def _change(self, event: Event) -> str:
        run = self._replay.run
        try:
            what = told(event, run.moves[event[MOVE]])
        except UNREADABLE:
            what = f"`{run.moves[event[MOVE]].trigger}`"
        row = run.requests.get(event[REF])
        name = f"ref {event[REF]}" if row is None else name_of(row)
        return f"{name} {what} (step {event[STEP]})"


def _blocks_of(positions: int, state: RunState) -> int:
    assert state.model is not None, "asked for only where a model is known"
    return -(-positions // state.cache.block_size) * state.model.planes


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def because(reason: str | None) -> str:
    """` because …`; nothing where the log of another engine tells no reasons."""
    return f" because {in_words(reason, BATCHES)}" if reason else ""


def _why(verdict: Entry) -> str:
    return verdict.what.removeprefix(PASSED_OVER)
