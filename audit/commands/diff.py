"""`rlt-audit diff`: where two runs part, and what that came to."""

from enum import StrEnum
from typing import Annotated

import typer

from audit.diff import Diff, diff, first_difference
from rlt_fsm.errors import LogError

from .common import ProgressLine, Status, mistakes_in_one_sentence, print_json
from .diff_text import first_lines, render

HELP = """Compare two runs: the first step where they part, what each side chose there and why, and
both sides in numbers.

Example: rlt-audit diff before.db after.db --level schedule

The verdict is one of: identical; same outputs, same schedule, other events; same outputs, other
schedule; other outputs. The level says which difference is shown and counts for the status:
schedule (the rows of each step's batch), outputs (tokens, exit depths, how requests ended), events
(everything but time).

Exit status: 0 the same on that level, 1 different, 2 a log cannot be read or the runs are of
different workloads, 3 the same as far as both logs go, but one has no end.
"""


class LevelName(StrEnum):
    """What is compared."""

    SCHEDULE = "schedule"
    OUTPUTS = "outputs"
    EVENTS = "events"


Level = Annotated[LevelName, typer.Option(help="Which difference counts.", metavar="LEVEL")]
RunA = Annotated[int | None, typer.Option(help="A's run; by default the newest.", metavar="N")]
RunB = Annotated[int | None, typer.Option(help="B's run; by default the newest.", metavar="N")]
Anyway = Annotated[bool, typer.Option("--anyway", help="Also runs of different workloads.")]
First = Annotated[
    bool,
    typer.Option(
        "--first", help="Only the first event that differs, at once: no states, no numbers."
    ),
]
EveryEvent = Annotated[
    bool, typer.Option("--every-event", help="Do not trust the digests: read all.")
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="diff", help=HELP)(_diff)


def _diff(
    a: Annotated[str, typer.Argument(help="The first log.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The second log.", metavar="B")],
    *,
    level: Level = LevelName.EVENTS,
    run_a: RunA = None,
    run_b: RunB = None,
    anyway: Anyway = False,
    first: First = False,
    every_event: EveryEvent = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence(), ProgressLine() as progress:
        if a == b and run_a == run_b:
            raise LogError(f"{a}: A and B are the same run; name two with --run-a and --run-b")
        if first:
            _only_first(a, b, run_a, run_b, as_json=as_json)
        answer = diff(
            a, b, run_a=run_a, run_b=run_b, level=level.value, anyway=anyway,
            trust_digests=not every_event, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json(answer)
    else:
        typer.echo(render(answer))
    raise typer.Exit(status_of(answer))


def status_of(answer: Diff) -> Status:
    """The exit status of a comparison."""
    if answer.differs:
        return Status.NO
    return Status.INCONCLUSIVE if answer.is_cut else Status.WELL


def _only_first(a: str, b: str, run_a: int | None, run_b: int | None, *, as_json: bool) -> None:
    found = first_difference(a, b, run_a=run_a, run_b=run_b)
    if as_json:
        print_json(found)
    else:
        typer.echo(
            "no event differs" if found.first is None else "\n".join(first_lines(found.first))
        )
    if found.first is not None:
        raise typer.Exit(Status.NO)
    raise typer.Exit(Status.INCONCLUSIVE if found.is_cut else Status.WELL)
