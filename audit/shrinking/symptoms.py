"""A symptom: the rule that broke, at which kind of place; or the difference, between which choices.

Seqs, steps and names change while a workload gets smaller; what is in a symptom does not.
"""

from typing import Final, Literal

import msgspec

from rlt_fsm.log.port import EventStore

from ..diff import Diff
from ..diffing.choice import Choice
from ..diffing.difference import Difference
from ..findings import Finding
from ..reader import MOVE, RunLog, open_log
from ..verify import verify
from ..words import parsed

KEYED: Final = frozenset({"select", "enqueue"})  # whose work key belongs to the place


class Symptom(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What must not get lost.

    A finding: `what` is the invariant, `place` the trigger of the event where it was found (with
    the work key of `select` and `enqueue`). A stop: the error, and the function that raised it. A
    difference: the verdict, and what either side chose.
    """

    kind: Literal["finding", "stop", "difference"]
    what: str
    place: str

    def __str__(self) -> str:
        """As a person reads it."""
        return f"{self.what} at {self.place}"


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a workload shows: its symptoms, each with its sentence, the first one first.

    `steps` is how long the run took, `step` where the first symptom is. `digests` name what ran.
    """

    symptoms: dict[Symptom, str]
    steps: int
    step: int
    digests: tuple[str | None, ...]


def findings_of(store: EventStore, run_id: int) -> dict[Symptom, Finding]:
    """The findings of a run by their symptoms; of several with the same one the first."""
    found: dict[Symptom, Finding] = {}
    with open_log(store) as log:
        run = log.run(run_id)
        for finding in verify(store, run_id).findings:
            symptom = Symptom(
                kind="finding", what=finding.invariant, place=_place(run, finding.seq)
            )
            found.setdefault(symptom, finding)
    return found


def _place(run: RunLog, seq: int) -> str:
    event = run.first_after(seq - 1)
    move = None if event is None else run.moves.get(event[MOVE])
    if move is None:
        return "the end"
    if move.trigger in KEYED and move.work is not None:
        return f"{move.trigger} {move.work[1].partition(':')[2]}"
    return move.trigger


def difference_of(found: Diff) -> dict[Symptom, str]:
    """The first difference of two runs as a symptom; none where they are the same."""
    first = found.first
    if first is None:
        return {}
    place = f"{_side(first, first.a.chose)} or {_side(first, first.b.chose)}"
    symptom = Symptom(kind="difference", what=found.verdict, place=place)
    return {symptom: f"step {first.step}: {first.a.what}, or {first.b.what}"}


def _side(first: Difference, chose: Choice) -> str:
    """What one side chose, without names and numbers."""
    if first.level == "outputs":
        return "+".join(chose.works) or "nothing"
    code = parsed(chose.reason or "")[0]
    batch = f"{'+'.join(chose.works)} ({code})" if chose.works else "nothing"
    hows = sorted({one.how for one in chose.preempted})
    return batch + "".join(f" after {how}" for how in hows)
