"""L1: the engine does not turn over without doing what it could."""

from rlt_fsm.states import RequestStatus

from ..legality import Move
from ..recount import Step
from .base import Handler, Invariant

ACTIVE = RequestStatus.ACTIVE.value
QUEUED = "QUEUED:"


class L1NoEmptyStep(Invariant):
    """With ready or admissible work no step is empty.

    A step is empty when it submits no batch; a step number that is skipped while requests are alive
    counts as one. It is a finding when no ticket is in flight, none completed in it, it is not the
    step of `close`, of a crash or of `recover`, and at its end (a) some request has QUEUED work, or
    (b) the best WAITING request in the order key has no KV, a slot is free, and all the blocks that
    it may ever need, with the watermark while anyone is ACTIVE, are free of references (with
    incremental allocation only while nobody is ACTIVE, since running requests have a claim to
    growth).
    """

    id = "L1"
    KEPT = (("_last_number", int | None),)

    def prepare(self) -> None:
        """No step has been read."""
        self._last_number: int | None = None
        self._completes = False

    def handler(self, move: Move) -> Handler | None:
        """A completed ticket is progress, whoever submitted it."""
        return self._completed if move.trigger in ("complete_batch", "fail_batch") else None

    def _completed(self, event: object) -> None:
        del event
        self._completes = True

    def before_step(self, step: Step) -> None:
        """The state is still that of the step before: was a number skipped for no reason?"""
        if self._last_number is not None and step.number > self._last_number + 1:
            self._check(step, f"Steps {self._last_number + 1} to {step.number - 1} were empty")
        self._last_number = step.number
        self._completes = False

    def after_step(self, step: Step) -> None:
        """An empty step must have had nothing to do."""
        is_whole = not (step.is_before_recovery or step.is_recovery)
        is_empty = is_whole and step.ticket is None and not self._completes
        if is_empty and step.has_ended and not step.has_close:
            self._check(step, f"Step {step.number} submits no batch")

    def _check(self, step: Step, what: str) -> None:
        if self.recount.in_flight:
            return
        why = self._ready() or self._admissible()
        if why is not None:
            self.found_in_step(step, f"{what}, although {why[0]}.", **why[1])

    def _ready(self) -> tuple[str, dict[str, object]] | None:
        """Somebody with QUEUED work."""
        recount = self.recount
        ready = [ref for ref in sorted(recount.slot_holders) if QUEUED in recount.work[ref]]
        if not ready:
            return None
        first = recount.name(ready[0])
        evidence = {"ready": len(ready), "request": first, "work": recount.work[ready[0]]}
        return f"{len(ready)} requests have work ready ({first}: {evidence['work']})", evidence

    def _admissible(self) -> tuple[str, dict[str, object]] | None:
        """The best waiting request, if everything that it needs is free."""
        recount, scheduler = self.recount, self.recount.config.scheduler
        best = min(recount.waiting, key=recount.order_key, default=None)
        request = None if best is None else recount.requests[best]
        if best is None or request is None or recount.kv[best] != "NONE":
            return None
        slots_held = len(recount.slot_holders)
        if scheduler.max_num_seqs is not None and slots_held >= scheduler.max_num_seqs:
            return None
        cache = recount.config.cache
        if cache.num_blocks is None or (cache.incremental_allocation and slots_held):
            return None
        free = cache.num_blocks - recount.blocks.referenced
        headroom = int(cache.watermark_ratio * cache.num_blocks) if slots_held else 0
        need = recount.required_blocks(request.capacity)
        if need + headroom > free:
            return None
        evidence: dict[str, object] = {
            "request": recount.name(best),
            "need": need,
            "blocks_free": free,
            "slots_held": slots_held,
        }
        return f"{evidence['request']} waits for {need} blocks and {free} are free", evidence
