"""S9: who references which KV block, and who owns which state row."""

from rlt_fsm.machines import FREE, HELD, NONE, OFFLOADED, RESIDENT
from rlt_fsm.states import WorkKey

from ..facts import BlockData, decode
from ..legality import Move
from ..reader import BLOCKS, EXTRA, REF, A, B, C, Event
from ..recount import Step
from ..streaks import Streak, Together, nothing
from .base import Handler, Invariant

MOVES_BLOCKS = frozenset(
    {"activate", "admit", "grow", "offload", "offload_resident", "publish", "evict"}
    | {"reserve", "resume", "retire", "rewind", "submit_remote"}
)


class S9Blocks(Invariant):
    """Every block has its owners, every scheduled position a block, every state row one owner.

    Recounted from the lists `take share drop publish evict` of the events. (a) A block is taken
    only when it is in the pool, no request references it and the prefix cache does not keep it; it
    is shared only while the prefix cache keeps it; it is dropped only by a request that references
    it, and only when no unretired ticket has a row of that request, so that nothing can still touch
    it when it is taken next; it is published once, by a request that references it, and evicted
    when the prefix cache keeps it. Lists cover all planes alike. (b) The `blocks` column of every
    request event is the number of blocks that the request references after it; KV NONE and
    OFFLOADED reference none, RESIDENT some. (c) With full reservation `admit` references, and tells
    as `need`, ceil((prompt_len + max_tokens - 1) / block_size) · planes blocks, those that it
    shares included. (d) Every position of a selected row lies in a block that its request
    references. (e) A state row is one of max_num_seqs, goes with the slot, and has one owner. (f)
    A step's row tells the blocks that are free (num_blocks - distinct referenced - prefix-only),
    prefix-only and on the host, as its events leave them; the host never holds more than
    host_snapshot_blocks.
    """

    id = "S9"

    def prepare(self) -> None:
        """Rows of tickets in flight are in the recount; nothing else is kept."""
        self._ledger = self.recount.blocks

    def handler(self, move: Move) -> Handler | None:
        """Every request event tells `blocks`; some change them."""
        if not move.is_of_request:
            return None
        if move.trigger == "select":
            is_coda = move.work is not None and move.work[1].endswith(WorkKey.DECODE_CODA)
            return self._count if is_coda else self._scheduled()
        if move.trigger not in MOVES_BLOCKS and move.slot is None and move.kv is None:
            return self._count_only()

        def change(event: Event) -> None:
            self._change(event, move)
            self._count(event)
            if move.kv is not None:
                self._check_kv(event, move.kv[1])

        return change

    def together(self, move: Move) -> Together | None:
        """Events that tell `blocks` and change none."""
        if move.trigger in MOVES_BLOCKS or move.slot is not None or move.kv is not None:
            return None
        owned, tokens = self._ledger.owned, self._ledger.tokens

        def holds(streak: Streak) -> bool:
            return [len(owned[ref]) for ref in streak.refs] == streak.blocks

        def hold_positions(streak: Streak) -> bool:
            return holds(streak) and all(
                start + count <= tokens[ref]
                for ref, start, count in zip(streak.refs, streak.b, streak.c, strict=True)
            )

        is_coda = move.work is not None and move.work[1].endswith(WorkKey.DECODE_CODA)
        has_positions = move.trigger == "select" and not is_coda
        return Together(hold_positions if has_positions else holds, nothing)

    # ---- every event -------------------------------------------------------------------------

    def _count_only(self) -> Handler:
        owned = self._ledger.owned

        def check(event: Event) -> None:
            if event[BLOCKS] != len(owned[event[REF]]):
                self._count(event)

        return check

    def _scheduled(self) -> Handler:
        owned, tokens = self._ledger.owned, self._ledger.tokens

        def check(event: Event) -> None:
            ref = event[REF]
            if event[BLOCKS] != len(owned[ref]):
                self._count(event)
            if event[B] + event[C] > tokens[ref]:
                self.found(
                    event,
                    f"Row {event[A]}, {self.recount.name(ref)}, is scheduled up to position "
                    f"{event[B] + event[C]}; its {len(owned[ref])} blocks hold {tokens[ref]}.",
                    token_end=event[B] + event[C],
                    tokens_held=tokens[ref],
                    blocks=len(owned[ref]),
                )

        return check

    def _count(self, event: Event) -> None:
        owned = len(self._ledger.owned[event[REF]])
        if event[BLOCKS] != owned:
            self.found(
                event,
                f"{self.recount.name(event[REF])} is recorded with {event[BLOCKS]} blocks; it "
                f"references {owned}.",
                recorded=event[BLOCKS],
                recounted=owned,
            )

    # ---- events that change something --------------------------------------------------------

    def _change(self, event: Event, move: Move) -> None:
        ref, ledger = event[REF], self._ledger
        if move.trigger in ("submit_remote", "submit", "refuse") and not event[BLOCKS]:
            return
        data = decode(event[EXTRA], BlockData)
        self._wrong(event, "shares", ledger.share(ref, data.share))
        self._wrong(event, "takes", ledger.take(ref, data.take))
        self._wrong(event, "drops", self._touched(ref) if data.drop else None)
        self._wrong(event, "drops", ledger.drop(ref, data.drop))
        self._wrong(event, "evicts", ledger.evict(data.evict))
        self._wrong(event, "publishes", ledger.publish(ref, data.publish))
        for name, blocks in (("take", data.take), ("share", data.share), ("drop", data.drop)):
            if len(blocks) % ledger.planes or len(set(blocks)) != len(blocks):
                self._wrong(event, f"has a list `{name}` of", self._uneven(blocks))
        if move.slot is not None:
            self._seat(event, move.slot, data)
        if move.kv is not None:
            self._host(event, move.kv, data)
        if move.trigger == "admit":
            self._reservation(event, data)

    def _uneven(self, blocks: tuple[int, ...]) -> str:
        return (
            f"{len(blocks)} blocks, {len(set(blocks))} of them distinct, over "
            f"{self._ledger.planes} planes"
        )

    def _wrong(self, event: Event, does: str, what: str | None) -> None:
        if what is not None:
            self.found(event, f"{self.recount.name(event[REF])} {does} {what}.", change=does)

    def _touched(self, ref: int) -> str | None:
        """Says so if a ticket in flight has a row of the request."""
        for ticket in self.recount.in_flight.values():
            if ref in ticket.refs:
                return f"blocks that ticket {ticket.number} can still touch"
        return None

    def _seat(self, event: Event, slot: tuple[str, str], data: BlockData) -> None:
        ref = event[REF]
        if slot == (HELD, FREE):
            self._ledger.unseat(ref)
        elif data.state_row is None:
            self._wrong(event, "takes a slot", "without a state row")
        else:
            rows = self.recount.config.scheduler.max_num_seqs
            self._wrong(event, "takes", self._ledger.seat(ref, data.state_row, rows))

    def _host(self, event: Event, kv: tuple[str, str], data: BlockData) -> None:
        ledger, ref = self._ledger, event[REF]
        if kv[1] != OFFLOADED:
            ledger.host.pop(ref, None)
            return
        ledger.host[ref] = data.host_blocks
        limit = self.recount.config.cache.host_snapshot_blocks
        if limit is not None and ledger.host_blocks > limit:
            self._wrong(event, "brings the host to", f"{ledger.host_blocks} blocks of {limit}")

    def _reservation(self, event: Event, data: BlockData) -> None:
        request = self.recount.requests[event[REF]]
        if request is None or self.recount.config.cache.incremental_allocation:
            return
        needed = self.recount.required_blocks(request.capacity)
        referenced = len(self._ledger.owned[event[REF]])
        for what, blocks in (("references", referenced), ("tells a need of", data.need)):
            if blocks is not None and blocks != needed:
                self.found(
                    event,
                    f"{self.recount.name(event[REF])} is admitted and {what} {blocks} blocks; its "
                    f"{request.capacity} positions need {needed}.",
                    blocks=blocks,
                    needed=needed,
                    positions=request.capacity,
                )

    def _check_kv(self, event: Event, kv: str) -> None:
        owned = len(self._ledger.owned[event[REF]])
        if (kv in (NONE, OFFLOADED) and owned) or (kv == RESIDENT and not owned):
            self.found(
                event,
                f"{self.recount.name(event[REF])} references {owned} blocks with KV {kv}.",
                blocks=owned,
                kv=kv,
            )

    # ---- the end of a step -------------------------------------------------------------------

    def after_step(self, step: Step) -> None:
        """Hold the row's three numbers against the count."""
        if step.row is None or self._ledger.num_blocks is None:
            return
        ledger = self._ledger
        self.compare_row(step, step.row, "blocks_free", ledger.free)
        self.compare_row(step, step.row, "blocks_prefix_only", ledger.prefix_only)
        self.compare_row(step, step.row, "host_blocks", ledger.host_blocks)
