"""F2 and F4: whose turn it is among the work that is ready."""

from rlt_fsm.machines import QUEUED
from rlt_fsm.states import PROMPT_WORKS, WorkKey

from ..legality import Move
from ..reader import REF, TICKET, Event
from ..ready_work import KeyTally
from ..recount import Step
from ..streaks import Streak, Together
from .base import Handler, Invariant

LOOPS = (WorkKey.DECODE_RECURRENT, WorkKey.SPECULATIVE)
PRELUDES = {WorkKey.DECODE_PRELUDE, WorkKey.PROMPT_PRELUDE}
KEY_OF = {state: key for key, state in QUEUED.items()}
# Rows of these reach positions that no earlier row has reached.
GROWING = {*PROMPT_WORKS, WorkKey.DECODE_PRELUDE, WorkKey.SPECULATIVE} - {WorkKey.PROMPT_RECURRENT}


class F2PromptShare(Invariant):
    """Decode loops that are ready wait for a bounded number of batches with prompt rows.

    Counted since the last batch with a DECODE_RECURRENT or SPECULATIVE row: the batches with prompt
    rows that are submitted while some request has DECODE_RECURRENT or SPECULATIVE work QUEUED and
    is left out of them. They are at most max_prefill_batches_before_decode; in mode `mixed` the
    first that embeds prompt tokens along with a DECODE_PRELUDE is not counted. The count starts
    anew when nobody is ready any more (aborted, or preempted): it is always somebody who waits.
    """

    id = "F2"
    KEPT = (("_counted", int), ("_has_excused", bool))

    def prepare(self) -> None:
        """No batch has run."""
        scheduler = self.recount.config.scheduler
        limit = scheduler.max_prefill_batches_before_decode
        self._limit = 1 << 62 if limit is None else limit
        self._is_mixed_mode = scheduler.mode == "mixed"
        self._counted = 0
        self._has_excused = False

    def handler(self, move: Move) -> Handler | None:
        """A batch is complete when it is submitted; who is ready may leave in other ways."""
        if move.trigger == "submit_batch":
            return self._submitted
        is_ready = move.work is not None and KEY_OF.get(move.work[0]) in LOOPS
        return self._left if is_ready and move.trigger != "select" else None

    def _left(self, event: Event) -> None:
        """Before F4 takes note of it."""
        if all(ref == event[REF] for ref in self._waiting()):
            self._counted = 0
            self._has_excused = False

    def _waiting(self) -> list[int]:
        return [ref for key in LOOPS for ref in self.recount.ready.by_key[key].ready]

    def _submitted(self, event: Event) -> None:
        recount, ready = self.recount, self.recount.ready
        works = ready.being_built()
        if any(key in works for key in LOOPS):
            recount.prompt_batches = self._counted = 0
            self._has_excused = False
        elif not PROMPT_WORKS.isdisjoint(works):
            recount.prompt_batches += 1
            if waiting := self._waiting():
                self._passed(event, works, waiting)

    def _passed(self, event: Event, works: list[WorkKey], waiting: list[int]) -> None:
        if self._is_mixed_mode and not self._has_excused and PRELUDES.issubset(works):
            self._has_excused = True
            return
        self._counted += 1
        if self._counted > self._limit:
            self.found(
                event,
                f"Ticket {event[TICKET]} is batch {self._counted} with prompt rows while decode "
                f"loops are ready ({len(waiting)} now) and none runs; "
                f"max_prefill_batches_before_decode is {self._limit}.",
                ticket=event[TICKET],
                prompt_batches=self._counted,
                ready=[self.recount.name(ref) for ref in waiting[:20]],
                max_prefill_batches_before_decode=self._limit,
            )


class F4Served(Invariant):
    """Ready work is served within as many batches of its key as the requests before it fill.

    A batch of a key has at least one row of it. When a request's work becomes ready (QUEUED), let n
    be the requests with that key when the next batch of it is chosen, itself included, and r the
    rows of the key per batch, on average over the batches of it that have left the request out: it
    is in one within ceil(n / r) + 1. Judged when the request is selected, and for the request that
    is ready longest after every batch of its key. Blocks are obtainable with full reservation, for
    DECODE_RECURRENT, DECODE_CODA and PROMPT_RECURRENT (their positions were reached before), and
    else where, all through the step, what is free or prefix-only was enough for the longest row
    that the key allows; the count starts anew after a batch of the key for which it was not. Being
    parked or rewound ends the wait. Asynchronously a coda is ready once the output of the one
    before is there.
    """

    id = "F4"

    def prepare(self) -> None:
        """Nothing is ready."""
        cache = self.recount.config.cache
        self._may_be_short = cache.incremental_allocation and cache.num_blocks is not None
        self._least = 0  # blocks that were obtainable all through the step

    def handler(self, move: Move) -> Handler | None:
        """Work that becomes ready or ceases to be; batches; and what makes blocks scarce."""
        if move.trigger == "submit_batch":
            return self._submitted
        if move.trigger == "recover":
            return self._forget_batch
        if move.trigger == "grow":
            return self._note_blocks if self._may_be_short else None
        if move.trigger == "output":
            is_async = self.recount.config.execution.async_scheduling
            return self._coda_may_follow if is_async else None
        if move.work is None or not move.is_of_request:
            return None
        source, dest = (KEY_OF.get(state) for state in move.work)
        if dest is not None:
            enters = move.status is not None
            return self._becomes_ready(self.recount.ready.by_key[dest], enters=enters)
        if source is None:
            return None
        tally = self.recount.ready.by_key[source]
        return self._selected(tally) if move.trigger == "select" else self._leaves(tally)

    def together(self, move: Move) -> Together | None:
        """Work that becomes ready in its turn, or is selected within a batch of becoming so."""
        if move.trigger == "output":
            return Together(lambda _: True, self._codas_may_follow)
        if move.work is None or move.status is not None:
            return None
        source, dest = (KEY_OF.get(state) for state in move.work)
        if dest is not None:
            return self._become_ready(self.recount.ready.by_key[dest])
        if source is None or move.trigger != "select":
            return None
        return self._selected_together(self.recount.ready.by_key[source])

    @staticmethod
    def _become_ready(tally: KeyTally) -> Together:
        def note(streak: Streak) -> None:
            tally.ready.update(dict.fromkeys(streak.refs, tally.batches))

        return Together(lambda _: True, note)

    def _selected_together(self, tally: KeyTally) -> Together:
        ready, last_ticket = tally.ready, self.recount.last_ticket

        def holds(streak: Streak) -> bool:
            return min([ready[ref] for ref in streak.refs]) >= tally.batches - 1

        def note(streak: Streak) -> None:
            tally.building += streak.length
            number = streak.ticket
            if len(ready) == streak.length:  # all of them, since `holds` found each there
                ready.clear()
                for ref in streak.refs:
                    last_ticket[ref] = number
                return
            for ref in streak.refs:
                last_ticket[ref] = number
                del ready[ref]

        return Together(holds, note)

    def _becomes_ready(self, tally: KeyTally, *, enters: bool) -> Handler:
        ready = tally.ready

        def queue(event: Event) -> None:
            ready[event[REF]] = tally.batches

        def enter(event: Event) -> None:
            ready[event[REF]] = tally.batches
            self._note_blocks(event)

        return enter if enters and self._may_be_short else queue

    def _forget_batch(self, event: Event) -> None:
        """The run crashed while it built one."""
        del event
        for tally in self.recount.ready.by_key.values():
            tally.building = 0

    def _coda_may_follow(self, event: Event) -> None:
        """An output is there: the request's next coda, if it is due already, may be chosen."""
        tally = self.recount.ready.by_key[WorkKey.DECODE_CODA]
        if event[REF] in tally.ready:
            tally.ready[event[REF]] = tally.batches

    def _codas_may_follow(self, streak: Streak) -> None:
        tally = self.recount.ready.by_key[WorkKey.DECODE_CODA]
        due = tally.ready.keys() & set(streak.refs)
        tally.ready.update(dict.fromkeys(due, tally.batches))

    def _leaves(self, tally: KeyTally) -> Handler:
        def leave(event: Event) -> None:
            tally.ready.pop(event[REF], None)

        return leave

    def _selected(self, tally: KeyTally) -> Handler:
        take, last_ticket = tally.ready.pop, self.recount.last_ticket

        def select(event: Event) -> None:
            ref = event[REF]
            last_ticket[ref] = event[TICKET]
            tally.building += 1
            since = take(ref, tally.batches)
            if tally.batches - since > 1:
                self._check(event, tally, ref, since)

        return select

    # ---- batches and blocks ------------------------------------------------------------------

    def before_step(self, step: Step) -> None:
        """What is obtainable falls and rises while a batch is built; the least counts."""
        del step
        if self._may_be_short:
            self._least = self._obtainable()

    def _obtainable(self) -> int:
        return (self.recount.config.cache.num_blocks or 0) - self.recount.blocks.referenced

    def _note_blocks(self, event: Event) -> None:
        del event
        self._least = min(self._least, self._obtainable())

    def _submitted(self, event: Event) -> None:
        ready = self.recount.ready
        ready.batches += 1
        for tally in ready.by_key.values():
            if not tally.building:
                continue
            tally.close_batch(ready.batches)
            if self._may_be_short and self._least < self._longest_row(tally.key):
                tally.scarce = tally.batches
            oldest = next(iter(tally.ready), None)
            if oldest is not None and tally.batches - tally.ready[oldest] > 1:
                self._check(event, tally, oldest, tally.ready[oldest])

    def _longest_row(self, key: WorkKey) -> int:
        """Blocks that the longest row of a key may need."""
        if key not in GROWING:
            return 0
        if key is WorkKey.DECODE_PRELUDE:
            return self.recount.required_blocks(1)
        scheduler = self.recount.config.scheduler
        limits = [scheduler.max_num_batched_tokens]
        limits += [scheduler.prefill_chunk_size] if key in PROMPT_WORKS else []
        return self.recount.required_blocks(min(n for n in (*limits, 1 << 62) if n is not None))

    def _check(self, event: Event, tally: KeyTally, ref: int, since: int) -> None:
        since = max(since, tally.scarce)
        batches = tally.batches - since
        if batches < 2:
            return
        rows = tally.rows_at[tally.batches] - tally.rows_at[since]
        requests = tally.ready_at[since]
        allowed = -(-requests * batches // rows) + 1
        if batches < allowed:
            return
        if ref in tally.ready:
            tally.ready[ref] = tally.batches  # what follows is another wait
        self.found_of(
            ref,
            event,
            f"{self.recount.name(ref)}, ready for {tally.key}, is left out of {batches} batches of "
            f"it with {rows} rows; with {requests} requests it is due within {allowed}.",
            work=tally.key.value,
            batches=batches,
            rows=rows,
            requests=requests,
            allowed=allowed,
        )
