"""The form of an invariant: what it may listen to, and how it says what it found.

An invariant is one class per id of the contract. Its docstring is the exact reading of that id; the
documentation is made from it.
"""

from collections.abc import Callable
from typing import ClassVar

from rlt_fsm.log.port import StepRow

from ..findings import Finding, Findings
from ..legality import Move
from ..reader import REF, SEQ, STEP, Event
from ..recount import Recount, Step
from ..streaks import Together

Handler = Callable[[Event], None]


class Invariant:
    """One rule. A pass asks once per distinct move for a handler, then calls it for each event."""

    id: ClassVar[str]
    # What it keeps from step to step, for a pass that begins at a checkpoint: see `kept`.
    KEPT: ClassVar[tuple[tuple[str, object], ...]] = ()
    KEPT_BY_REF: ClassVar[tuple[tuple[str, object], ...]] = ()

    def __init__(self, recount: Recount, findings: Findings) -> None:
        self.recount = recount
        self._findings = findings
        self.prepare()

    def prepare(self) -> None:
        """Set up what the rule keeps."""

    @property
    def is_undecided(self) -> bool:
        """Whether what it has read may still turn out to be wrong by itself."""
        return False

    @property
    def begins_steps(self) -> bool:
        """Whether it has something to do before a step."""
        return type(self).before_step is not Invariant.before_step

    @property
    def ends_steps(self) -> bool:
        """Whether it has something to do after a step."""
        return type(self).after_step is not Invariant.after_step

    def taken_up(self) -> None:
        """What it keeps was set anew: set up what follows from it."""

    def handler(self, move: Move) -> Handler | None:
        """What to call for every event with this move; None: such events cannot break the rule."""
        del move
        return None

    def together(self, move: Move) -> Together | None:
        """How to judge a streak of events with this move; None: one by one only."""
        del move
        return None

    def before_step(self, step: Step) -> None:
        """A step begins: the recount stands where the step before left it."""

    def after_step(self, step: Step) -> None:
        """A step has been read to its end."""

    def at_end(self, step: Step) -> None:
        """The log ends with this step, which has been read."""

    def found(self, event: Event, message: str, /, *, part: str = "", **evidence: object) -> None:
        """Report an event that breaks the rule; `part` names an own place in SPECIFICITY."""
        self.found_of(event[REF], event, message, part=part, **evidence)

    def found_of(
        self, ref: int | None, event: Event, message: str, /, *, part: str = "", **evidence: object
    ) -> None:
        """Report that an event shows request `ref` to break the rule."""
        row = None if ref is None else self.recount.run.requests.get(ref)
        if row is not None:
            evidence["generation"] = row.generation
            evidence["previous_seq"] = self.recount.latest_seq.get(ref)
        request_id = None if row is None else row.request_id
        finding = Finding(
            invariant=self.id,
            seq=event[SEQ],
            step=event[STEP],
            request_id=request_id,
            message=message,
            evidence=evidence,
        )
        self._findings.add(f"{self.id}.{part}" if part else self.id, finding)

    def found_in_step(self, step: Step, message: str, /, **evidence: object) -> None:
        """Report a step that breaks the rule as a whole; its seq is the step's last."""
        seq = step.last_seq or (step.row.last_seq if step.row else 0)
        finding = Finding(
            invariant=self.id,
            seq=seq,
            step=step.number,
            request_id=None,
            message=message,
            evidence=evidence,
        )
        self._findings.add(self.id, finding)

    def _is_untold(self, name: str) -> bool:
        """Whether a NULL in this column of `step` means that another engine does not tell it."""
        run = self.recount.run
        return run.is_foreign and (name != "ticket" or "step.ticket" in run.absent)

    def compare_row(self, step: Step, row: StepRow, name: str, counted: int | None) -> None:
        """Hold one number of a step's row against the recount at the step's end."""
        recorded = getattr(row, name)
        if recorded is None and self._is_untold(name):
            return
        if recorded != counted:
            self.found_in_step(
                step,
                f"Step {step.number} is recorded with {name} {recorded}, but its events make it "
                f"{counted}.",
                column=name,
                recorded=recorded,
                recounted=counted,
            )
