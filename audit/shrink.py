"""`audit.shrink`: the smallest workload that shows the same symptom, by delta debugging.

Nothing more can be dropped from it or lowered in it (requests, actions, lengths, configuration)
without losing the symptom. The same start gives the same result; a start that does not show the
same twice is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from rlt_fsm.arguments import function, function_or_none, of_kind, whole
from rlt_fsm.errors import RltError
from rlt_fsm.progress_line import Pace
from rlt_fsm.wording import counted
from rlt_fsm.workload_shrink import shrink as drop_and_lower

from .shrinking.observers import Observe
from .shrinking.symptoms import Observed, Symptom

MAX_TRIALS: Final = 20_000
SPARE_STEPS: Final = 100  # beyond twice the step of the symptom: no smaller run needs more
Tell = Callable[[str], None]
Object = dict[str, Any]


class ShrinkError(RltError):
    """A start that cannot be made smaller: it shows nothing, or not the same twice."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large a workload is; `steps` is what its run takes."""

    requests: int
    actions: int
    settings: int
    steps: int


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The small workload, and what it shows.

    `is_minimal`: nothing more can be removed or lowered; else the trials were used up.
    """

    symptom: Symptom
    message: str
    trials: int
    is_minimal: bool
    before: Size
    after: Size
    workload: Object


def shrink(
    workload: str | bytes,
    observe: Observe,
    *,
    symptom: Symptom | None = None,
    step: int | None = None,
    max_trials: int = MAX_TRIALS,
    tell: Tell | None = None,
) -> Shrunk:
    """Make a workload small that shows a symptom.

    Args:
        workload: the text of a workload file.
        observe: runs a workload's text and says what it shows; raises RltError where it is none.
        symptom: which one to keep; the first that is shown, if None.
        step: where it is, if that is known: what comes long after it is not run at all.
        max_trials: how many candidates may be run.
        tell: told what is going on.

    Raises:
        ShrinkError: it shows no symptom, not this one, or not the same twice.
        RltError: it cannot be run.
    """
    start = _without_expectations(_object_of(workload))
    function_or_none("tell", tell)
    function("observe", observe)
    if symptom is not None:
        of_kind("symptom", symptom, Symptom, "a Symptom, or None")
    step = None if step is None else whole("step", step, least=0)
    max_trials = whole("max_trials", max_trials, least=1)
    if step is not None:
        start["expect"] = {"max_steps": _enough_steps(start, step)}
    first = _same_twice(start, observe, symptom)
    kept = next(iter(first.symptoms)) if symptom is None else symptom
    start["expect"] = {"max_steps": _enough_steps(start, first.step)}
    search = _Search(observe, kept, max_trials, tell)
    small = drop_and_lower(start, search.shows, max_trials=max_trials)
    last = observe(_text(small))
    if kept not in last.symptoms:
        raise ShrinkError("the smallest workload does not show the same twice: it is flaky")
    return Shrunk(
        symptom=kept,
        message=last.symptoms[kept],
        trials=search.trials,
        is_minimal=search.trials < max_trials,
        before=_size(start, first),
        after=_size(small, last),
        workload=small,
    )


def _same_twice(start: Object, observe: Observe, symptom: Symptom | None) -> Observed:
    """What the start shows; refused where it is nothing, not the symptom, or not the same twice."""
    first, again = observe(_text(start)), observe(_text(start))
    if first != again:
        raise ShrinkError(
            "the workload does not show the same twice: what is flaky cannot be made smaller "
            f"({_shows(first)}, then {_shows(again)})"
        )
    if symptom is not None and symptom not in first.symptoms:
        raise ShrinkError(f"the workload, run again, does not show {symptom}; {_shows(first)}")
    if not first.symptoms:
        raise ShrinkError("the workload shows nothing that could be kept while it gets smaller")
    return first


class _Search:
    """The oracle of the search, which counts."""

    def __init__(self, observe: Observe, kept: Symptom, max_trials: int, tell: Tell | None) -> None:
        self._observe = observe
        self._kept = kept
        self._max_trials = max_trials
        self._tell = tell
        self._pace = Pace()
        self.trials = 0

    def shows(self, candidate: Object) -> bool:
        """Whether a candidate is a workload at all and still shows the symptom."""
        self.trials += 1
        if self._tell is not None:
            self._pace.note(self.trials, 0)
            left = counted(len(candidate.get("requests", ())), "request")
            self._tell(f"trial {self.trials:,}, {left} left{self._pace.text()}")
        try:
            return self._kept in self._observe(_text(candidate)).symptoms
        except RltError:
            return False


def _object_of(workload: str | bytes) -> Object:
    try:
        decoded: Object = msgspec.json.decode(workload, type=Object)
    except (TypeError, UnicodeError, RecursionError, msgspec.MsgspecError) as error:
        raise ShrinkError(f"the workload is no JSON object: {error}") from error
    return decoded


def _without_expectations(workload: Object) -> Object:
    bound = workload.get("expect", {}).get("max_steps")
    kept = {key: value for key, value in workload.items() if key not in {"expect", "about"}}
    return kept if bound is None else {**kept, "expect": {"max_steps": bound}}


def _enough_steps(workload: Object, step: int) -> int:
    enough = 2 * step + SPARE_STEPS
    bound = workload.get("expect", {}).get("max_steps", enough)
    return int(min(bound, enough))


def _text(workload: Object) -> bytes:
    return msgspec.json.encode(workload)


def _shows(seen: Observed) -> str:
    shown = ", ".join(map(str, seen.symptoms)) or "nothing"
    return f"it shows {shown}"


def _size(workload: Object, seen: Observed) -> Size:
    return Size(
        requests=len(workload.get("requests", ())),
        actions=len(workload.get("actions", ())),
        settings=_leaves(workload.get("config", {})),
        steps=seen.steps,
    )


def _leaves(value: object) -> int:
    return sum(map(_leaves, value.values())) if isinstance(value, Mapping) else 1
