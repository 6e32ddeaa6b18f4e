"""F1 and F3: who enters while others wait."""

from rlt_fsm.machines import RESIDENT
from rlt_fsm.states import RequestStatus

from ..entry_needs import EntryNeeds
from ..facts import BlockData, decode
from ..legality import Move
from ..reader import EXTRA, REF, Event
from .base import Handler, Invariant

WAITING = RequestStatus.WAITING.value
UNLIMITED = 1 << 62


class F1AdmissionOrder(Invariant):
    """Admission follows the order key; who cannot run yet is passed a bounded number of times.

    For each `admit` (of a fresh request, or of one that was rewound and starts anew; a `resume`
    does not count), against every request that is WAITING then with a better order key: (a) it
    could not have run instead. It could where, just before the event, it needs no more blocks than
    the admitted one claims (`need`, without pages shared with running requests; its own need
    counted without sharing any); or its need is obtainable (free or prefix-only) beside the
    watermark, while a slot is held, and the growth promised to running requests. Its need is all
    its positions (with incremental allocation and preemption: its prompt, and the outputs that it
    replays); where it keeps its KV, that and its next token, less what it holds on the device.
    Promised is what running requests may still take up to that same bound and for their next
    token, none with full reservation. (b) Over its whole life it is passed at most
    max_admission_bypasses times.
    """

    id = "F1"

    def prepare(self) -> None:
        """Nobody waits."""
        self._needs = EntryNeeds(self.recount)
        limit = self.recount.config.scheduler.max_admission_bypasses
        self._limit = UNLIMITED if limit is None else limit

    def handler(self, move: Move) -> Handler | None:
        """Whoever begins or ceases to wait; `admit` is judged before anything of it is counted."""
        if move.status is None or not move.is_of_request:
            return None
        source, dest = move.status
        if move.trigger == "admit":
            return self._admitted
        if dest == WAITING:
            return self._joined
        return self._left if source == WAITING else None

    def _joined(self, event: Event) -> None:
        self.recount.line.join(event[REF], self.recount.order_key(event[REF]))

    def _left(self, event: Event) -> None:
        self.recount.line.leave(event[REF])

    def _admitted(self, event: Event) -> None:
        recount = self.recount
        recount.line.leave(event[REF])
        ahead = recount.line.ahead_of(recount.order_key(event[REF]))
        if not ahead:
            return
        claimed = self._needs.claimed_by(decode(event[EXTRA], BlockData))
        for ref in ahead:
            passes = recount.passes[ref] = recount.passes.get(ref, 0) + 1
            if self._needs.could_run(ref, claimed):
                self.found(
                    event,
                    f"{recount.name(event[REF])} is admitted before {recount.name(ref)}, which is "
                    f"better, waits, and could have run: it needs {self._needs.need(ref)} blocks.",
                    passed=recount.name(ref),
                    need=self._needs.need(ref),
                    claimed=claimed,
                )
            elif passes > self._limit:
                self.found(
                    event,
                    f"{recount.name(event[REF])} is the {passes}th that is admitted before "
                    f"{recount.name(ref)}; max_admission_bypasses is {self._limit}.",
                    passed=recount.name(ref),
                    passes=passes,
                    max_admission_bypasses=self._limit,
                )


class F3NoInversion(Invariant):
    """What would let a better waiting request run does not go to a worse one that resumes.

    That nobody is preempted for a worse request is S10's (d); fresh admissions are F1's; the growth
    of a running request may take any block. For each `resume`, against every request that is
    WAITING then with a better order key: (a) it could not have run instead (as F1 says it, the
    resuming one claiming what it takes): a resume has no allowance. (b) Where it was passed by
    max_admission_bypasses admissions already and waits for blocks, F1's bound is used up, and the
    resume takes no blocks either; a slot alone would not let it run.
    """

    id = "F3"

    def prepare(self) -> None:
        """The waiting line is F1's; nothing else is kept."""
        self._needs = EntryNeeds(self.recount)
        limit = self.recount.config.scheduler.max_admission_bypasses
        self._limit = UNLIMITED if limit is None else limit

    def handler(self, move: Move) -> Handler | None:
        """Only who resumes."""
        return self._resumed if move.trigger == "resume" else None

    def _resumed(self, event: Event) -> None:
        recount = self.recount
        ahead = recount.line.ahead_of(recount.order_key(event[REF]))
        if not ahead:
            return
        taken = len(decode(event[EXTRA], BlockData).take)
        for ref in ahead:
            passes = recount.passes.get(ref, 0)
            if self._needs.could_run(ref, taken):
                why = "could have run"
            elif taken and passes >= self._limit and recount.kv[ref] != RESIDENT:
                why = f"was passed {passes} times already and lacks blocks"
            else:
                continue
            self.found(
                event,
                f"{recount.name(event[REF])} resumes with {taken} blocks before "
                f"{recount.name(ref)}, which is better, waits, and {why}: it needs "
                f"{self._needs.need(ref)}.",
                passed=recount.name(ref),
                need=self._needs.need(ref),
                taken=taken,
                passes=passes,
            )
