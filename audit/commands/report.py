"""`rlt-audit report`: a run, or two, as a page to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from audit.diff import diff
from audit.exporting.target import refuse_the_log, whole_file
from rlt_fsm.errors import LogError
from rlt_fsm.wording import counted

from .common import ProgressLine, mistakes_in_one_sentence, print_json
from .diff import Anyway, Level, LevelName

if TYPE_CHECKING:
    from audit.reporting.figures import RunView

HELP = """Write a run as one HTML file: verdict, occupancy, a lane for each request, batches, waits.

Example: rlt-audit report run.db -o report.html

With --against it shows two runs, A and B, and both sides of the first place where they differ. The
file needs no network and no program but a browser. What is found does not change the exit status:
`rlt-audit verify` and `rlt-audit diff` are for that.

Exit status: 0 the file is written, 2 a log cannot be read, the runs are of different workloads, or
the file cannot be written.
"""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A run on the page."""

    log: str
    run_id: int
    verdict: str
    events: int
    steps: int
    requests: int


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the file, its size, and the runs in it; `step` is where two of them part."""

    out: str
    bytes: int
    runs: list[Shown]
    step: int | None


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="report", help=HELP)(_report)


def _report(
    db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.", metavar="FILE")],
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="The log of B; DB is A then.", metavar="DB")
    ] = None,
    run_b: Annotated[
        int | None, typer.Option(help="B's run; by default the newest.", metavar="N")
    ] = None,
    level: Level = LevelName.EVENTS,
    anyway: Anyway = False,
    as_json: Annotated[bool, typer.Option("--json", help="Tell as JSON what was written.")] = False,
) -> None:
    from audit.reporting.figures import run_view  # noqa: PLC0415  # numpy where it is needed
    from audit.reporting.page import render  # noqa: PLC0415  # jinja2 where it is needed
    from audit.reporting.sides import sides_view  # noqa: PLC0415  # with the others

    with mistakes_in_one_sentence("no half file is left"), ProgressLine() as progress:
        for log in (db, against):
            if log is not None:
                refuse_the_log(str(out), log)
        if against is None:
            views, sides = [run_view(db, run, progress=progress)], None
        else:
            if (db, run) == (against, run_b):
                raise LogError(f"{db}: A and B are the same run; name two with --run and --run-b")
            found = diff(
                db, against, run_a=run, run_b=run_b, level=level.value, anyway=anyway,
                progress=progress,
            )  # fmt: skip
            sides = sides_view(found)
            both = (("A", db, run), ("B", against, run_b))
            views = [run_view(log, n, label, progress=progress) for label, log, n in both]
        text = render(views, sides)
        with whole_file(out) as part:
            part.write_text(text, encoding="utf-8")
    step = None if sides is None else sides.step
    written = Written(out=str(out), bytes=out.stat().st_size, runs=_shown(views), step=step)
    if as_json:
        print_json(written)
    else:
        typer.echo("\n".join(_told(written)))


def _shown(views: "list[RunView]") -> list[Shown]:
    reports = [(view.log, view.report) for view in views]
    return [
        Shown(
            log=log, run_id=report.run_id, verdict=report.verdict, events=report.events,
            steps=report.steps, requests=report.requests,
        )
        for log, report in reports
    ]  # fmt: skip


def _told(written: Written) -> list[str]:
    lines = [
        f"{one.log} run {one.run_id}: {one.verdict}, {counted(one.events, 'event')}, "
        f"{counted(one.steps, 'step')}, {counted(one.requests, 'request')}"
        for one in written.runs
    ]
    if len(written.runs) > 1:
        part = "they do not differ" if written.step is None else f"they part in step {written.step}"
        lines.append(part)
    return [*lines, f"{written.out}  {written.bytes / 1e6:.1f} MB"]
