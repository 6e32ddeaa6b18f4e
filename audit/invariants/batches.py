"""S6: what may stand in one batch."""

from rlt_fsm.machines import NULL
from rlt_fsm.states import OPERATION_OF, PROMPT_WORKS, WorkKey

from ..facts import BatchData, decode
from ..legality import Move
from ..reader import EXTRA, REF, TICKET, A, C, D, Event
from ..recount import Step, Ticket
from ..streaks import Streak, Together
from .base import Handler, Invariant

COMPOSITE = frozenset({WorkKey.PROMPT_ATOMIC, WorkKey.SPECULATIVE})  # batched alone


class _Batch:
    """The batch being built: what its `select` events add up to."""

    __slots__ = ("first", "intervals", "rows", "ticket", "tokens", "works")

    def __init__(self, ticket: Ticket, first: Event) -> None:
        self.ticket = ticket
        self.first = first
        self.rows = 0
        self.tokens = 0
        self.works: dict[WorkKey, int] = {}  # key → its first row
        self.intervals: set[tuple[int, int | None]] = set()  # (ref, depth) of split prompts


class S6Batch(Invariant):
    """A batch is one operation over rows that were selected for it, within every limit.

    The rows of a ticket are the `select` events that carry its number; they come one after another,
    numbered 0, 1, 2 …, before its one `submit_batch`, which closes it. (a) all keys of a batch have
    the same operation, and PROMPT_ATOMIC and SPECULATIVE stand alone; (b) no row is selected for a
    ticket that was submitted before, and none is left without its `submit_batch` when the step
    ends (that the row was QUEUED with its key is S1's source); (c) no request has two rows, but a
    split prompt may have one for each depth; (d) requests ≤ max_num_seqs; (e) Σ token_count ≤
    max_num_batched_tokens; (f) a prompt row has ≤ prefill_chunk_size tokens; (g) every row has ≥ 1
    token; (h) rows, tokens, works and operation told by `submit_batch` are those of the rows. A
    batch has at least one row.
    """

    id = "S6"

    def prepare(self) -> None:
        """No batch is being built."""
        self._batch: _Batch | None = None
        scheduler = self.recount.config.scheduler
        self._max_tokens = scheduler.max_num_batched_tokens or 1 << 62
        self._max_requests = scheduler.max_num_seqs or 1 << 62
        self._chunk = scheduler.prefill_chunk_size or 1 << 62

    def handler(self, move: Move) -> Handler | None:
        """`select` adds a row, `submit_batch` closes the batch, `recover` forgets it."""
        if move.trigger == "submit_batch":
            return self._submitted
        if move.trigger == "recover":
            return self._forget
        if move.trigger != "select" or move.work is None:
            return None
        name = move.work[1].partition(":")[2]
        return self._row_handler(WorkKey(name)) if name in WorkKey.__members__ else None

    def _row_handler(self, key: WorkKey) -> Handler:
        is_prompt = key in PROMPT_WORKS
        max_count = self._chunk if is_prompt else 1 << 62
        max_tokens = self._max_tokens

        def select(event: Event) -> None:
            batch = self._batch
            if batch is None or batch.ticket.number != event[TICKET]:
                batch = self._open(event)
            ref, count = event[REF], event[C]
            refs = batch.ticket.refs
            if ref in refs:
                self._second_row(batch, event, key)
            refs[ref] = event[A]
            if key not in batch.works:
                self._new_key(batch, event, key)
            if event[A] != batch.rows:
                self._wrong_row_number(batch, event)
            batch.rows += 1
            batch.tokens += count
            if not 1 <= count <= max_count:
                self._wrong_count(event, key)
            if batch.tokens > max_tokens:
                self._too_many_tokens(batch, event)

        return select

    def together(self, move: Move) -> Together | None:
        """Rows of one key that go on where the batch being built stands, or begin a new one."""
        name = "" if move.work is None else move.work[1].partition(":")[2]
        if move.trigger != "select" or name not in WorkKey.__members__:
            return None
        key = WorkKey(name)
        max_count = self._chunk if key in PROMPT_WORKS else 1 << 62

        def holds(streak: Streak) -> bool:
            batch, rows, tokens = self._batch, 0, 0
            if batch is not None:
                rows, tokens = batch.rows, batch.tokens
                is_same = batch.ticket.number == streak.ticket and list(batch.works) == [key]
                if not is_same or not batch.ticket.refs.keys().isdisjoint(streak.refs):
                    return False
            elif streak.ticket in self.recount.tickets:
                return False
            return (
                streak.a == list(range(rows, rows + streak.length))
                and 1 <= min(streak.c) <= max(streak.c) <= max_count
                and tokens + sum(streak.c) <= self._max_tokens
            )

        def note(streak: Streak) -> None:
            batch = self._batch
            if batch is None:
                ticket = self.recount.tickets[streak.ticket] = Ticket(streak.ticket)
                batch = self._batch = _Batch(ticket, streak.first)
                batch.works[key] = 0
            batch.ticket.refs.update(zip(streak.refs, streak.a, strict=True))
            batch.rows += streak.length
            batch.tokens += sum(streak.c)

        return Together(holds, note)

    # ---- one row -----------------------------------------------------------------------------

    def _open(self, event: Event) -> _Batch:
        number = event[TICKET]
        if self._batch is not None:
            self._left_open(self._batch)
        ticket = self.recount.tickets.get(number)
        if ticket is None:
            ticket = self.recount.tickets[number] = Ticket(number)
        elif ticket.state != NULL:
            self.found(
                event,
                f"Row {event[A]} is selected for ticket {number}, which was submitted before "
                f"(seq {ticket.submitted_seq}).",
                ticket=number,
                submitted_seq=ticket.submitted_seq,
            )
            ticket = Ticket(number)  # its rows are not those of the ticket that was submitted
        self._batch = _Batch(ticket, event)
        return self._batch

    def _second_row(self, batch: _Batch, event: Event, key: WorkKey) -> None:
        ref, depth = event[REF], event[D]
        if key is WorkKey.PROMPT_RECURRENT and (ref, depth) not in batch.intervals:
            batch.intervals.add((ref, int(depth or 0)))
            return
        self.found(
            event,
            f"{self.recount.name(ref)} has rows {batch.ticket.refs[ref]} and {event[A]} in ticket "
            f"{event[TICKET]}.",
            ticket=event[TICKET],
            rows=[batch.ticket.refs[ref], event[A]],
        )

    def _new_key(self, batch: _Batch, event: Event, key: WorkKey) -> None:
        for other in batch.works:
            if OPERATION_OF[other] is not OPERATION_OF[key] or COMPOSITE & {other, key}:
                self.found(
                    event,
                    f"Row {event[A]} of ticket {event[TICKET]} is {key}, which cannot share a "
                    f"batch with the {other} of row {batch.works[other]}.",
                    ticket=event[TICKET],
                    works=[other.value, key.value],
                )
        batch.works[key] = event[A]

    def _wrong_row_number(self, batch: _Batch, event: Event) -> None:
        self.found(
            event,
            f"Ticket {event[TICKET]} gets row {event[A]} where row {batch.rows} is due.",
            ticket=event[TICKET],
            row=event[A],
            due=batch.rows,
        )

    def _wrong_count(self, event: Event, key: WorkKey) -> None:
        limit = f" (prefill_chunk_size is {self._chunk})" if event[C] > 0 else ""
        self.found(
            event,
            f"Row {event[A]} of ticket {event[TICKET]} is a {key} of {event[C]} tokens{limit}.",
            ticket=event[TICKET],
            tokens=event[C],
            prefill_chunk_size=self._chunk,
        )

    def _too_many_tokens(self, batch: _Batch, event: Event) -> None:
        self.found(
            event,
            f"Row {event[A]} brings ticket {event[TICKET]} to {batch.tokens} tokens; "
            f"max_num_batched_tokens is {self._max_tokens}.",
            ticket=event[TICKET],
            tokens=batch.tokens,
            max_num_batched_tokens=self._max_tokens,
        )

    # ---- the whole batch ---------------------------------------------------------------------

    def _submitted(self, event: Event) -> None:
        batch, self._batch = self._batch, None
        number = event[TICKET]
        if batch is None or batch.ticket.number != number:
            selected = "no rows are" if batch is None else f"ticket {batch.ticket.number} is"
            self.found(
                event,
                f"Ticket {number} is submitted, but {selected} being selected.",
                ticket=number,
                selected=None if batch is None else batch.ticket.number,
            )
            return
        told = decode(event[EXTRA], BatchData)
        self._compare(event, "rows", told.rows, batch.rows)
        self._compare(event, "tokens", told.tokens, batch.tokens)
        self._compare(event, "works", list(told.works), sorted(key.value for key in batch.works))
        operation = OPERATION_OF[next(iter(batch.works))].value
        self._compare(event, "operation", told.operation, operation)
        if len(batch.ticket.refs) > self._max_requests:
            self.found(
                event,
                f"Ticket {number} has {len(batch.ticket.refs)} requests; max_num_seqs is "
                f"{self._max_requests}.",
                ticket=number,
                requests=len(batch.ticket.refs),
                max_num_seqs=self._max_requests,
            )

    def _compare(self, event: Event, name: str, told: object, counted: object) -> None:
        if told != counted:
            self.found(
                event,
                f"Ticket {event[TICKET]} is submitted with {name} {told}; its rows make {counted}.",
                ticket=event[TICKET],
                told=told,
                counted=counted,
            )

    def _left_open(self, batch: _Batch) -> None:
        self.found(
            batch.first,
            f"{batch.rows} rows were selected for ticket {batch.ticket.number}, which was never "
            "submitted.",
            ticket=batch.ticket.number,
            rows=batch.rows,
        )

    def _forget(self, event: Event) -> None:
        del event
        self._batch = None

    def after_step(self, step: Step) -> None:
        """A batch is selected and submitted within one step."""
        if self._batch is not None and step.has_ended:
            self._left_open(self._batch)
            self._batch = None
