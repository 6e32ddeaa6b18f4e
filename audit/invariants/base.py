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

Handler = Callable[[Event], None]


class Invariant:
    """One rule. A pass asks once per distinct move for a handler, then calls it for each event."""

    id: ClassVar[str]

    def __init__(self, recount: Recount, findings: Findings) -> None:
        self.recount = recount
        self._findings = findings
        self.prepare()

    def prepare(self) -> None:
        """Set up what the rule keeps."""

    def handler(self, move: Move) -> Handler | None:
        """What to call for every event with this move; None: such events cannot break the rule."""
        del move

    def before_step(self, step: Step) -> None:
        """A step begins: the recount stands where the step before left it."""

    def after_step(self, step: Step) -> None:
        """A step has been read to its end."""

    def found(self, event: Event, message: str, *, part: str = "", **evidence: object) -> None:
        """Report an event that breaks the rule; `part` names an own place in SPECIFICITY."""
        self.found_of(event[REF], event, message, part=part, **evidence)

    def found_of(
        self, ref: int | None, event: Event, message: str, *, part: str = "", **evidence: object
    ) -> None:
        """Report that an event shows request `ref` to break the rule."""
        row = None if ref is None else self.recount.run.requests.get(ref)
        if row is not None:
            evidence["generation"] = row[2]
        request_id = None if row is None else row[1]
        self._add(part, event[SEQ], event[STEP], request_id, message, evidence)

    def found_in_step(self, step: Step, message: str, **evidence: object) -> None:
        """Report a step that breaks the rule as a whole; its seq is the step's last."""
        seq = step.events[-1][SEQ] if step.events else step.row.last_seq if step.row else 0
        self._add("", seq, step.number, None, message, evidence)

    def _add(
        self,
        part: str,
        seq: int,
        step: int,
        request_id: str | None,
        message: str,
        evidence: dict[str, object],
    ) -> None:
        finding = Finding(
            invariant=self.id,
            seq=seq,
            step=step,
            request_id=request_id,
            message=message,
            evidence=evidence,
        )
        self._findings.add(f"{self.id}.{part}" if part else self.id, finding)

    def compare_row(self, step: Step, row: StepRow, column: int, name: str, counted: int) -> None:
        """Hold one number of a step's row against the recount at the step's end."""
        if row[column] != counted:
            self.found_in_step(
                step,
                f"step {step.number} is recorded with {name} {row[column]}, but its events leave "
                f"{counted}.",
                recorded=row[column],
                recounted=counted,
            )
