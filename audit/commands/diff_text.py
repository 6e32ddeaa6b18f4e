"""A `Diff` as text, for every command that ends with one."""

from collections.abc import Callable
from typing import Final

from audit.diff import Diff
from audit.diffing.difference import Difference, There
from audit.diffing.in_words import chosen_facts, state_facts, verdict_in_words
from audit.diffing.side import About
from audit.diffing.summary import Summary
from audit.words import joined, shown
from rlt_fsm.wording import counted

from .tables import aligned, wrapped

CELL_WIDTH: Final = 48
MAX_WAITS: Final = 10  # requests whose waits changed; --json has all
DIGEST_SHOWN: Final = 12


def render(diff: Diff) -> str:
    """The whole answer."""
    lines = [_about("A", diff.a), _about("B", diff.b), "", verdict_in_words(diff)]
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
    rows += _both("chose ", first, chosen_facts)
    if first.a.before:
        rows += _both("before ", first, lambda there: state_facts(there.before))
        rows += _both("after ", first, lambda there: state_facts(there.after))
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
