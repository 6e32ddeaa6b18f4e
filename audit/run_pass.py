"""One reading of one run: every invariant at once, step by step.

The pass knows no rule: it hands each event to the invariants that listen to its move, and asks them
again when the step has ended. A run that begins with a checkpoint is taken up where an earlier pass
left it.
"""

import time
from collections.abc import Callable

import msgspec

from rlt_fsm.log.port import Checkpoint

from . import engine_checkpoint, unrecorded
from .findings import Finding, Findings
from .invariants import ALL, Handler, S13Log
from .kept import (
    Kept,
    keep_attributes,
    keep_recount,
    kept_in,
    live_refs,
    take_up_attributes,
    take_up_recount,
)
from .reader import MOVE, REF, SEQ, TICKET, Event, RunLog
from .recount import Recount, Step
from .report import RunReport
from .shape import explain
from .steps import whole_run
from .streaks import SHORTEST, UNREADABLE, Kin, Together, all_hold, streaks_of, stretches

Progress = Callable[[int, int], None]  # (events read, events there are)


def trusted(run: RunLog) -> str | None:
    """What is taken on trust, as a sentence."""
    if run.checkpoint is None:
        return None
    _, step, seq, digest, _, _, archive = run.checkpoint
    return (
        f"steps 0 to {step} (seq 1 to {seq:,}, digest {digest.hex()[:16]}…) are in {archive}: what "
        "they led to is taken on trust from the checkpoint"
    )


class _Handlers(dict[int, tuple[Handler, ...]]):
    """Who listens to each move of a log, found when the first event of it comes."""

    def __init__(self, find: Callable[[int], tuple[Handler, ...]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, number: int) -> tuple[Handler, ...]:
        found = self[number] = self._find(number)
        return found


class Pass:
    """One reading of one run; `shortest`: how many events of a kind are judged at one go."""

    def __init__(
        self, run: RunLog, progress: Progress | None = None, *, shortest: int = SHORTEST
    ) -> None:
        self._run = run
        self._shortest = shortest
        self._progress = progress
        self._findings = Findings()
        self._recount = Recount(run)
        kept = kept_in(run)
        if kept is not None:
            take_up_recount(self._recount, kept.recount)
        self._log_rule = S13Log(self._recount, self._findings)
        left_out = unrecorded.left_out(run.absent)
        rules = [rule for rule in ALL if rule.id not in left_out]
        self._invariants = [rule(self._recount, self._findings) for rule in rules]
        if kept is not None:
            self._take_up(kept)
        self._before_step = [rule.before_step for rule in self._invariants if rule.begins_steps]
        self._after_step = [rule.after_step for rule in self._invariants if rule.ends_steps]
        self._handlers = _Handlers(self._listeners)
        self._kin = Kin(run.moves)
        self._together: dict[int, list[Together]] = {}
        self._step = Step(0, [], None)
        self._events = self._steps = self._last_seq = 0

    # ---- from one pass to the next -----------------------------------------------------------

    def keep(self) -> str | None:
        """All that the pass has in hand between two steps, as text, for a pass that goes on from
        here; None where it cannot be told: something is wrong, or a stall is not over yet.
        """
        if self._findings.in_order() or any(rule.is_undecided for rule in self._invariants):
            return None
        recount = self._recount
        live = live_refs(recount)
        kept = Kept(
            recount=keep_recount(recount, live),
            rules={
                name: keep_attributes(rule, live, recount.in_flight)
                for name, rule in self._keepers().items()
            },
        )
        return msgspec.json.encode(kept).decode()

    def _take_up(self, kept: Kept) -> None:
        for name, rule in self._keepers().items():
            take_up_attributes(rule, kept.rules[name])
        for invariant in self._invariants:
            invariant.taken_up()

    def _keepers(self) -> dict[str, object]:
        rules: dict[str, object] = {rule.id: rule for rule in self._invariants}
        return {**rules, "S13": self._log_rule, "S13.causes": self._log_rule.causes}

    def _listeners(self, number: int) -> tuple[Handler, ...]:
        move = self._run.moves[number]
        own = self._own_handlers()
        first = [own[move.trigger]] if move.trigger in own else []
        rules = (rule.handler(move) for rule in (*self._invariants, self._log_rule))
        return (*first, *(handler for handler in rules if handler is not None))

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "submit": self._recount.submitted,
            "submit_remote": self._recount.submitted,
            "submit_batch": self._note_ticket,
            "close": self._note_close,
        }

    def _judges(self, number: int) -> list[Together]:
        """Those of every rule that listens to a move, if they all judge its streaks."""
        known = self._together.get(number)
        if known is None:
            move = self._run.moves[number]
            own = move.trigger in self._own_handlers()
            rules = [rule for rule in (*self._invariants, self._log_rule) if rule.handler(move)]
            judges = [None if own else rule.together(move) for rule in rules]
            together = [judge for judge in judges if judge is not None]
            known = together if len(together) == len(judges) else []
            self._together[number] = known
        return known

    def _note_ticket(self, event: Event) -> None:
        self._step.ticket = event[TICKET]

    def _note_close(self, event: Event) -> None:
        del event
        self._step.has_close = True

    def whole_run(self) -> RunReport:
        """Read the run to its end and judge it."""
        started = time.perf_counter()
        for step in whole_run(self._run):
            self.take(step)
        return self.report(time.perf_counter() - started)

    def learn(self) -> None:
        """Take up what the run has named since: its requests and moves."""
        self._recount.grow()
        self._log_rule.learn()

    @property
    def is_over(self) -> bool:
        """Whether `close` was read."""
        return self._log_rule.close_seq is not None

    def new_findings(self) -> list[Finding]:
        """Those since this was asked last."""
        return self._findings.new()

    def report(self, seconds: float, why: str | None = None) -> RunReport:
        """Judge what was read; `why` says why a run without its end goes on no further."""
        if self._steps:
            self._log_rule.at_end(self._step)
            for rule in self._invariants:
                rule.at_end(self._step)
        findings, why = self._findings.in_order(), self._inconclusive(why)
        return RunReport(
            run_id=self._run.info.run_id,
            verdict="findings" if findings else "clean" if why is None else "inconclusive",
            why=why,
            events=self._events,
            steps=self._steps,
            requests=sum(1 for request in self._recount.requests if request is not None),
            seconds=seconds,
            findings=findings,
            counts=self._findings.counts,
            digest=self._run.info.digest,
            unchecked=unrecorded.sentences(self._run.absent),
            trusted=trusted(self._run),
        )

    def _inconclusive(self, why: str | None) -> str | None:
        if self._events == 0:
            return "it has no events"
        if not self.is_over:
            end = why or "still being written or cut off"
            return f"it has no `close`: it ends at seq {self._last_seq}, {end}"
        return None

    # ---- one step ----------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Check the next step."""
        if not self._steps and self._run.checkpoint is not None:
            self._check_engine(step, self._run.checkpoint)
        self._step = step
        self._recount.is_recovering = step.is_recovery
        for before_step in self._before_step:
            before_step(step)
        readable = self._log_rule.readable(step)
        if readable is not None:
            self._take_events(readable)
        else:
            self._take_stretches(step)
        for after_step in self._after_step:
            after_step(step)
        self._log_rule.after_step(step)
        if step.number in self._run.boundaries:
            self._check_boundary(step, self._run.boundaries[step.number])
        self._events += step.length
        self._last_seq = step.last_seq or self._last_seq
        self._steps += 1
        if self._progress is not None and self._steps % 256 == 0:
            self._progress(self._events, self._run.info.last_seq)

    def _check_boundary(self, step: Step, checkpoint: Checkpoint) -> None:
        """What stands in the checkpoint between two parts is what the events add up to."""
        kept = self.keep()
        if kept is None:
            return
        self._check_engine(step, checkpoint)
        if kept != checkpoint.audit:
            self._log_rule.found_in_step(
                step,
                f"The checkpoint after step {step.number} tells otherwise than the events before "
                "it add up to.",
                archive=checkpoint.archive,
            )

    def _check_engine(self, step: Step, checkpoint: Checkpoint) -> None:
        """What an engine would go on from is what the events led to, as far as a recount goes."""
        recount = self._recount
        live = live_refs(recount)
        what = engine_checkpoint.difference(checkpoint.engine, checkpoint.seq, recount, live)
        if what is not None:
            self._log_rule.found_in_step(
                step, f"The checkpoint after step {checkpoint.step} tells an engine of {what}."
            )

    def _take_events(self, events: list[Event]) -> None:
        """Show every event to every rule that listens to its move."""
        handlers, latest = self._handlers, self._recount.latest_seq
        for event in events:
            try:
                for handler in handlers[event[MOVE]]:
                    handler(event)
                latest[event[REF]] = event[SEQ]
            except UNREADABLE:
                if not self._unreadable(event):
                    raise

    def _take_stretches(self, step: Step) -> None:
        """The same, but for streaks of which every rule says at one go that nothing is wrong."""
        moves, taken = step.columns[MOVE], 0
        for start, end in stretches(moves, self._kin):
            if end - start < self._shortest or not self._judges(moves[start]):
                continue
            if taken < start:  # the rules judge what follows by what these lead to
                self._take_events(step.events(taken, start))
            if not self._take_together(step, start, end):
                self._take_events(step.events(start, end))
            taken = end
        if taken < len(moves):
            self._take_events(step.events(taken))

    def _take_together(self, step: Step, start: int, end: int) -> bool:
        """Judge a stretch at one go; False, and nothing changed, where that is not enough."""
        streaks = streaks_of(step, start, end)
        judged = [(self._judges(move), streak) for move, streak in streaks.items()]
        if not judged or not all(all_hold(judges, streak) for judges, streak in judged):
            return False
        for judges, streak in judged:
            for judge in judges:
                judge.note(streak)
            self._recount.latest_seq.update(zip(streak.refs, streak.seqs, strict=True))
        return True

    def _unreadable(self, event: Event) -> bool:
        """Report a row that an invariant stumbled over; False if it is well formed."""
        what = explain(event, self._run.moves[event[MOVE]])
        if what is not None:
            self._log_rule.malformed(event, what)
        return what is not None
