"""`rlt-audit compare`: two revisions of the code on the same workloads."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Final

import typer

from audit.compare import Compared, Comparison, compare
from audit.comparing.runs import Ran
from audit.comparing.worktrees import Revision
from audit.diffing.in_words import VERDICTS

from .common import ProgressLine, Status, mistakes_in_one_sentence, print_json
from .diff import Level, LevelName
from .diff_text import render
from .tables import aligned

SKIP: Final = 125  # what `git bisect run` takes for "cannot be tested"
STATUS_OF: Final = {
    "same": Status.WELL,
    "different": Status.NO,
    "unusable": Status.USAGE,
    "inconclusive": Status.INCONCLUSIVE,
    "uncompared": Status.USAGE,
}
HELP = """Run workloads with two revisions of the code and compare what they did.

Example: rlt-audit compare --base main --head HEAD --workload tests/scenarios/data

Each revision is checked out into a git worktree of its own, which is removed again, and runs in a
process of its own. A is the base, B the head; `.` as a revision is the working tree as it is. Of
one workload the whole comparison is printed, of several a table.

Exit status: 0 the same, 1 different (or one revision breaks off), 2 a revision or workload that
cannot be used, 3 inconclusive. Of several workloads the worst decides: 1, then 2, then 3, then 0; a
workload that the base cannot run does not count beside others. In `git bisect run` give --bisect:
2 and 3 become 125, which skips the revision.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="compare", help=HELP)(_compare)


def _compare(
    more: Annotated[
        list[str] | None, typer.Argument(help="More workloads.", metavar="[FILE]...")
    ] = None,
    *,
    base: Annotated[str, typer.Option(help="The revision to compare with.", metavar="REV")],
    head: Annotated[str, typer.Option(help="The revision to judge.", metavar="REV")] = "HEAD",
    workload: Annotated[
        list[str],
        typer.Option(help="An rlt-workload/1 file, or a folder; repeat it.", metavar="FILE"),
    ],
    repo: Annotated[str, typer.Option(help="The repository.", metavar="DIR")] = ".",
    level: Level = LevelName.EVENTS,
    keep: Annotated[
        str | None, typer.Option("--keep", "-o", help="Keep the logs here.", metavar="DIR")
    ] = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Exit with 125 where nothing can be said.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    try:
        with (
            ended_by_signals(),
            mistakes_in_one_sentence("the worktrees are removed"),
            ProgressLine() as progress,
        ):
            answer = compare(
                base, head, [*workload, *(more or [])], repo=repo, level=level.value, keep=keep,
                tell=progress.show,
            )  # fmt: skip
    except typer.Exit as mistake:
        is_mistake = mistake.exit_code == Status.USAGE
        raise typer.Exit(SKIP if bisect and is_mistake else mistake.exit_code) from mistake
    if as_json:
        print_json(answer)
    else:
        typer.echo(as_text(answer))
    status = STATUS_OF[answer.outcome]
    is_answer = status in (Status.WELL, Status.NO)
    raise typer.Exit(status if is_answer or not bisect else SKIP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A polite request to end tidies up like an interrupt."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- text ----------------------------------------------------------------------------------------


def as_text(answer: Comparison) -> str:
    """The comparison of one workload, or a table of several."""
    lines = [f"base  {_named(answer.base)}", f"head  {_named(answer.head)}", ""]
    if len(answer.compared) > 1:
        return "\n".join([*lines, *_table(answer), "", _count(answer)])
    (one,) = answer.compared
    lines += _notes(one)
    return "\n".join(lines if one.diff is None else [*lines, render(one.diff)])


def _named(revision: Revision) -> str:
    name = "the working tree, on" if revision.name == "." else revision.name
    return f"{name} {revision.commit[:12]}"


def _notes(one: Compared) -> list[str]:
    """What either side said for itself."""
    if one.base.end == one.head.end == "unusable" and one.base.message == one.head.message:
        return [f"neither can run it: {one.base.message}"]
    return [*_said("base", one.base), *_said("head", one.head)]


def _said(label: str, ran: Ran) -> list[str]:
    if ran.end == "ran":
        return [f"{label}, not as expected: {sentence}" for sentence in ran.failures]
    what = "cannot run it" if ran.end == "unusable" else "broke off"
    return [f"{label} {what}: {ran.message}"]


def _table(answer: Comparison) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("workload", "verdict", "first at", "steps", "preempted", "waited", "")
    ]
    return aligned(rows + [_row(one) for one in answer.compared])


def _row(one: Compared) -> tuple[str, ...]:
    notes = _notes(one)
    if one.diff is None:
        return (one.workload, one.outcome, "", "", "", "", "; ".join(notes))
    found = one.diff
    a, b = found.summary.a, found.summary.b
    return (
        one.workload,
        VERDICTS[found.verdict],
        "" if found.first is None else f"step {found.first.step}",
        _change(a.steps, b.steps),
        _change(a.preempted, b.preempted),
        _change(a.waited, b.waited),
        "; ".join(notes),
    )


def _change(a: int, b: int) -> str:
    return f"{a:,}" if a == b else f"{a:,} → {b:,}"


def _count(answer: Comparison) -> str:
    counts: dict[str, int] = {}
    for one in answer.compared:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return f"{len(answer.compared)} workloads: {parts} (level {answer.level})"
