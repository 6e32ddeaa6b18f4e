"""A `Diff` as text, for every command that ends with one."""

from collections.abc import Callable
from typing import Any, Final, cast

from audit.diff import Diff
from audit.diffing.choice import Choice
from audit.diffing.difference import Difference, There
from audit.diffing.side import About
from audit.diffing.summary import Summary
from audit.words import joined, shown
from rlt_fsm.wording import counted

from .tables import aligned, wrapped

CELL_WIDTH: Final = 48
MAX_WAITS: Final = 10  # requests whose waits changed; --json has all
MAX_PASSED_OVER: Final = 4
DIGEST_SHOWN: Final = 12
VERDICTS: Final = {
    "identical": "identical",
    "same-schedule": "same outputs, same schedule, other events",
    "same-outputs": "same outputs, other schedule",
    "other-outputs": "other outputs",
    "inconclusive": "inconclusive: no difference as far as both logs go",
}


def render(diff: Diff) -> str:
    """The whole answer."""
    lines = [_about("A", diff.a), _about("B", diff.b), "", _verdict(diff)]
    if diff.changed:
        rows = [("configuration", "A", "B")]
        rows += [(changed.field, _plain(changed.a), _plain(changed.b)) for changed in diff.changed]
        lines += ["", *aligned(rows)]
    if diff.unknown:
        lines += ["", f"known to one version only: {joined(diff.unknown)}"]
    if diff.first is not None:
        lines += ["", *first_lines(diff.first)]
    return "\n".join([*lines, "", *_summary(diff.summary)])


def _about(label: str, about: About) -> str:
    revision = about.revision.partition("+")
    version = revision[0][:7] + revision[1] + revision[2] or about.engine_version
    digest = "none" if about.digest is None else about.digest[:DIGEST_SHOWN]
    log = "in memory," if about.log == ":memory:" else about.log
    return (
        f"{label}  {log} run {about.run_id}  {version}  {counted(about.events, 'event')}, "
        f"{about.outcome}, digest {digest}"
    )


def _verdict(diff: Diff) -> str:
    verdict = VERDICTS[diff.verdict]
    if diff.verdict == "same-schedule" and diff.first is None and diff.changed:
        verdict += " (the configuration alone)"
    if diff.is_cut and diff.verdict != "inconclusive":
        verdict += ", as far as both logs go"
    if diff.is_cut:
        cut = [label for label, about in (("A", diff.a), ("B", diff.b)) if not about.has_end]
        verdict += f" ({joined(cut)} {'has' if len(cut) == 1 else 'have'} no end)"
    return verdict


def _plain(value: object) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


# ---- the first difference ------------------------------------------------------------------------


def first_lines(first: Difference) -> list[str]:
    """The place, what each side chose, its state before and after."""
    whom = "" if first.request is None else f", request {shown(first.request)}"
    lines = [f"first difference ({first.level}): step {first.step}{whom}", ""]
    rows: list[tuple[str, str, str]] = [("", "A", "B"), ("did", first.a.what, first.b.what)]
    rows += _both("chose ", first, _chosen)
    if first.a.before:
        rows += _both("before ", first, lambda there: _state(there.before))
        rows += _both("after ", first, lambda there: _state(there.after))
    lines += wrapped(rows, CELL_WIDTH)
    for label, there in (("A", first.a), ("B", first.b)):
        lines += [f"{label}: {shown(sentence)}" for sentence in there.why]
    return lines


def _both(
    prefix: str, first: Difference, facts: Callable[[There], dict[str, str]]
) -> list[tuple[str, str, str]]:
    """A row for each fact that one side has."""
    a, b = facts(first.a), facts(first.b)
    return [(prefix + name, a.get(name, ""), b.get(name, "")) for name in {**a, **b}]


def _chosen(there: There) -> dict[str, str]:
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


def _state(state: dict[str, Any]) -> dict[str, str]:
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


# ---- the summary ---------------------------------------------------------------------------------


def _summary(summary: Summary) -> list[str]:
    a, b = summary.a, summary.b
    rows: list[tuple[str, ...]] = [("summary", "A", "B", "change")]
    rows += [
        _numbers("steps", a.steps, b.steps),
        _numbers("batches", a.batches, b.batches),
        _numbers("rows", a.rows, b.rows),
        _numbers("tokens in batches", a.tokens, b.tokens),
        _numbers("outputs", a.outputs, b.outputs),
        _numbers("tokens per step", a.tokens_per_step, b.tokens_per_step),
        _numbers("outputs per step", a.outputs_per_step, b.outputs_per_step),
        _numbers("preemptions", a.preempted, b.preempted),
        _numbers("steps waited", a.waited, b.waited),
    ]
    for line in summary.works:
        rows.append(_numbers(f"{line.works} batches", line.a.batches, line.b.batches))
        rows.append(_numbers(f"{line.works} rows", line.a.rows, line.b.rows))
    lines = aligned(rows, right=(1, 2, 3))
    changed = [line for line in summary.waits if line.change]
    if changed:
        rows = [("steps waited by", "A", "B", "change")]
        for wait in changed[:MAX_WAITS]:
            cells = ("-" if steps is None else f"{steps:,}" for steps in (wait.a, wait.b))
            rows.append((shown(wait.request), *cells, f"{wait.change:+,}"))
        lines += ["", *aligned(rows, right=(1, 2, 3))]
        if len(changed) > MAX_WAITS:
            lines.append(f"… {len(changed) - MAX_WAITS:,} more changed: --json has them all")
    return lines


def _numbers(name: str, a: float, b: float) -> tuple[str, str, str, str]:
    if isinstance(a, int) and isinstance(b, int):
        return name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if a != b else ""
    return name, f"{a:.2f}", f"{b:.2f}", f"{b - a:+.2f}" if a != b else ""
