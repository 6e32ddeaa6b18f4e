"""L2 and L3: a run gets on, and what is preempted is preempted for something."""

from collections.abc import Callable

from rlt_fsm.machines import NULL
from rlt_fsm.states import RequestStatus

from ..facts import PreemptionData, decode
from ..legality import Move
from ..reader import EXTRA, REF, SEQ, Event
from ..recount import Step
from ..stall import Cycle, Stall
from ..streaks import Streak, Together
from .base import Handler, Invariant

FINISHED = RequestStatus.FINISHED.value
# They come from outside, as arrivals do: an earlier state does not tell what follows them.
INPUTS = frozenset({"abort", "fail_batch", "staged", "transfer_done"})
FINISHES_DEPTHS = ("TAKEN:PROMPT_ATOMIC", "TAKEN:PROMPT_RECURRENT")


class L2NetProgress(Invariant):
    """Some request gets further than it ever was, in bounded time; a repeated state is a livelock.

    A request's high-water mark is (token-depths of its prompt that are finished, outputs): a prompt
    token counts once for each depth that it finished, cached tokens for all of them; what a replay
    computes again raises no mark, but after a crash, which takes everything: all marks start anew,
    and what is replayed counts like a prompt. (a) While requests are alive (submitted and not
    FINISHED), some mark rises within 4 · (the most requests alive since the last rise) + 64 steps;
    the count starts anew when nobody was alive. (b) Two steps without a rise, an arrival, an abort
    or a device failure between them do not end in the same state, unless no live request has an
    event between them. The state is, for each live request, its four machine states, blocks, host
    blocks, outputs, prompt frontiers and loops by depth, and the admissions that passed it (up to
    the limit); the order of every queue; the order in which the keys had their last batch; the
    batches with prompt rows since the last decode loop (up to the limit); the tickets in flight;
    how many blocks are referenced, prefix-only and on the host. Compared are the steps from the
    (depths + 8)th without a rise on (at the latest the 60th). A livelock is told with its cycle:
    the first step, the length in steps, the members (requests with events in it), the batches by
    work key, and the keys that starve: somebody has that work ready after one of the steps, and no
    batch of it runs. One finding for each stall: (b) where there is a cycle, else (a).
    """

    id = "L2"
    KEPT = (
        ("_live", dict[int, None]),
        ("_lost", set[int]),
        ("_since", int),
        ("_most_alive", int),
        ("_has_input", bool),
        ("_last_seq", int),
        ("_is_reported", bool),
    )
    KEPT_BY_REF = (("_high", int),)

    def prepare(self) -> None:
        """Nobody is alive."""
        self._live: dict[int, None] = {}  # refs in the order of arrival
        self._high: dict[int, int] = {}  # ref → token-depths of its prompt, at their highest
        self._lost: set[int] = set()  # refs that lived through a crash: their replays count
        self._has_risen = False
        self._since = 0  # the step of the last rise
        self._most_alive = 0
        self._patience = min(self.recount.model.depths + 8, 60)
        self._stall = Stall(self.recount)
        self._has_input = False
        self._last_seq = 0
        self._overdue: Callable[[], None] | None = None  # says (a) when the stall is over
        self._is_reported = False

    @property
    def is_undecided(self) -> bool:
        """A stall is told when it is over."""
        return self._overdue is not None

    def handler(self, move: Move) -> Handler | None:
        """Who comes and goes, what comes from outside, and what raises a mark."""
        if move.trigger == "output":
            return self._rose
        if move.trigger == "admit":
            return self._prompt_moved  # cached tokens
        if move.trigger == "enqueue" and move.work is not None:
            return self._prompt_moved if move.work[0] in FINISHES_DEPTHS else None
        if move.trigger == "recover":
            return self._recovered
        source, dest = (move.is_of_request and move.status) or (None, None)
        if source == NULL:
            return self._came
        if dest == FINISHED:
            return self._aborted if move.trigger in INPUTS else self._gone
        return self._note_input if move.trigger in INPUTS else None

    def together(self, move: Move) -> Together | None:
        """Outputs: each is a rise."""
        return Together(lambda _: True, self._rose_together) if move.trigger == "output" else None

    def _rose_together(self, streak: Streak) -> None:
        del streak
        self._has_risen = True

    def _came(self, event: Event) -> None:
        self._live[event[REF]] = None
        self._has_input = True

    def _aborted(self, event: Event) -> None:
        self._gone(event)
        self._has_input = True

    def _note_input(self, event: Event) -> None:
        del event
        self._has_input = True

    def _recovered(self, event: Event) -> None:
        del event
        self._high.clear()
        self._lost = set(self._live)
        self._has_risen = True  # the count of steps starts anew

    def _gone(self, event: Event) -> None:
        self._live.pop(event[REF], None)
        self._lost.discard(event[REF])
        self._high.pop(event[REF], None)

    def _rose(self, event: Event) -> None:
        del event
        self._has_risen = True

    def _prompt_moved(self, event: Event) -> None:
        ref = event[REF]
        progress, request = self.recount.progress.get(ref), self.recount.requests[ref]
        if progress is None or request is None:
            return
        most = progress.prompt_end if ref in self._lost else request.prompt_len
        finished = sum(min(tokens, most) for tokens in progress.done)
        if finished > self._high.get(ref, 0):
            self._high[ref] = finished
            self._has_risen = True

    # ---- steps -------------------------------------------------------------------------------

    def before_step(self, step: Step) -> None:
        """Nobody alive: the count starts when someone comes."""
        if not self._live:
            self._since = step.number

    def after_step(self, step: Step) -> None:
        """Count the step, and look whether its state was there before."""
        self._last_seq = step.last_seq or self._last_seq
        if self._has_risen or not self._live or step.is_last:
            self._settle(step)
            return
        self._most_alive = max(self._most_alive, len(self._live))
        steps = step.number - self._since
        if steps < self._patience or self._is_reported:
            return
        if self._has_input:
            self._has_input = False
            self._stall.forget()
        cycle = self._stall.cycle_at(step.number, self._last_seq, self._live)
        if cycle is not None:
            self._is_reported = True
            self._found_cycle(step, cycle)
        elif steps >= 4 * self._most_alive + 64 and self._overdue is None:
            self._overdue = self._say_overdue(step, steps, self._most_alive)

    def at_end(self, step: Step) -> None:
        """Nothing more will come of a stall."""
        self._settle(step)

    def _settle(self, step: Step) -> None:
        """The stall, if there was one, is over: it had no cycle."""
        if self._overdue is not None and not self._is_reported:
            self._overdue()
        self._overdue = None
        self._is_reported = self._has_risen = self._has_input = False
        self._since, self._most_alive = step.number, len(self._live)
        self._stall.forget()

    # ---- what to say -------------------------------------------------------------------------

    def _found_cycle(self, step: Step, cycle: Cycle) -> None:
        starving = ", ".join(cycle.starving)
        self.found_in_step(
            step,
            f"Livelock: step {step.number} ends in the state of step {cycle.first_step}, with no "
            f"progress since step {self._since}: a cycle of {cycle.length} steps among "
            f"{', '.join(cycle.members[:8])}"
            f"{f', in which {starving} starves' if starving else ''}.",
            length=cycle.length,
            first_step=cycle.first_step,
            members=cycle.members,
            batches=cycle.batches,
            starving=cycle.starving,
            last_progress_step=self._since,
            alive=len(self._live),
        )

    def _say_overdue(self, step: Step, steps: int, alive: int) -> Callable[[], None]:
        since = self._since

        def say() -> None:
            self.found_in_step(
                step,
                f"Nobody got further for {steps} steps, since step {since}, with up to {alive} "
                f"requests alive; {4 * alive + 64} are allowed.",
                steps=steps,
                last_progress_step=since,
                alive=alive,
                allowed=4 * alive + 64,
            )

        return say


class L3WorthIt(Invariant):
    """Between two preemptions of one request for the same requester, one of the two runs.

    A preemption is a `yield`, `offload` or `rewind` that takes an ACTIVE request back to WAITING;
    giving up the KV of one that waits already (`offload_resident`, or a `rewind` that does not move
    the status) is the rest of an earlier one. Between two of them with the same victim and the same
    `for`, a batch with a row of either is submitted, the batch that the first one made room for
    included. A `recover` between them counts as well: the crash took back what the first one gave.
    """

    id = "L3"
    KEPT_BY_REF = (("_last", dict[str, tuple[int, int]]),)

    def prepare(self) -> None:
        """Nobody was preempted."""
        # victim → requester → (the first ticket that counts, seq of the preemption)
        self._last: dict[int, dict[str, tuple[int, int]]] = {}

    def handler(self, move: Move) -> Handler | None:
        """Preemptions, the end of victims, and crashes."""
        if move.trigger == "retire":
            return self._retired
        if move.trigger == "recover":
            return self._recovered
        takes_turn = move.trigger in ("yield", "offload", "rewind")
        return self._preempted if takes_turn and move.status is not None else None

    def _retired(self, event: Event) -> None:
        self._last.pop(event[REF], None)

    def _recovered(self, event: Event) -> None:
        del event
        self._last.clear()

    def _preempted(self, event: Event) -> None:
        told = decode(event[EXTRA], PreemptionData).for_whom
        requester = None if told is None else self.recount.ref_of(told)
        if told is None or requester is None:
            return
        victim, recount = event[REF], self.recount
        before = self._last.setdefault(victim, {}).get(told)
        self._last[victim][told] = recount.next_ticket, event[SEQ]
        if before is None:
            return
        ran = max(recount.last_ticket[victim], recount.last_ticket[requester])
        if ran < before[0]:
            self.found(
                event,
                f"{recount.name(victim)} is preempted for {recount.name(requester)} again (before "
                f"at seq {before[1]}), and no batch had a row of either in between.",
                requester=told,
                before_seq=before[1],
                last_ticket=ran,
            )
