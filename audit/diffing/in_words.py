"""Two runs in words: how far they are the same; where they part, what each chose and its state."""

from typing import Any, Final, cast

from rlt_fsm.wording import counted

from ..diff import Diff
from ..words import joined, shown
from .choice import Choice
from .difference import There

MAX_PASSED_OVER: Final = 4
VERDICTS: Final = {
    "identical": "identical",
    "same-schedule": "same outputs, same schedule, other events",
    "same-outputs": "same outputs, other schedule",
    "other-outputs": "other outputs",
    "inconclusive": "inconclusive: no difference as far as both logs go",
}


def verdict_in_words(diff: Diff) -> str:
    """How far two runs are the same, and which of them is cut off."""
    verdict = VERDICTS[diff.verdict]
    if diff.verdict == "same-schedule" and diff.first is None and diff.changed:
        verdict += " (the configuration alone)"
    if diff.is_cut and diff.verdict != "inconclusive":
        verdict += ", as far as both logs go"
    if diff.is_cut:
        cut = [label for label, about in (("A", diff.a), ("B", diff.b)) if not about.has_end]
        verdict += f" ({joined(cut)} {'has' if len(cut) == 1 else 'have'} no end)"
    return verdict


def chosen_facts(there: There) -> dict[str, str]:
    """What a side chose in its step, by name."""
    chose: Choice = there.chose
    facts: dict[str, str] = {}
    if chose.works:
        size = f"{counted(len(chose.rows), 'row')}, {counted(chose.tokens, 'token')}"
        facts["batch"] = f"{' and '.join(chose.works)} ({size})"
        facts["because"] = f"{chose.because} ({chose.reason})"
    else:
        facts["batch"] = "none"
    if chose.admitted:
        facts["admitted"] = joined(map(shown, chose.admitted))
    if chose.resumed:
        facts["resumed"] = joined(map(shown, chose.resumed))
    if chose.preempted:
        facts["preempted"] = joined(
            f"{shown(one.request)} ({one.how}"
            + (f" for {shown(one.for_whom)})" if one.for_whom is not None else ")")
            for one in chose.preempted
        )
    if chose.passed_over:
        facts["passed over"] = joined(
            (f"{shown(one.request)} ({shown(one.reason)})" for one in chose.passed_over),
            most=MAX_PASSED_OVER,
        )
    return facts


def state_facts(state: dict[str, Any]) -> dict[str, str]:
    """A side's state (`RunState.as_dict`) in a few lines, by name."""
    slots, blocks = state["slots"], state["blocks"]
    queues = cast("dict[str, list[str]]", state["queues"])
    total = "?" if blocks["total"] is None else f"{blocks['total']:,}"
    return {
        "waiting": joined(map(shown, state["waiting"])) or "nobody",
        "slots": f"{len(slots['held'])} of {slots['total']}: "
        + (joined(map(shown, slots["held"])) or "nobody"),
        "queued": "; ".join(
            f"{key}: {joined(map(shown, names))}" for key, names in queues.items() if names
        )
        or "nothing",
        "blocks": f"{blocks['referenced']:,} of {total} referenced, {blocks['host']:,} on the host",
    }
