"""`rlt-audit report`: a run as a page to look at."""

from pathlib import Path
from typing import Annotated

import typer

from rlt_fsm.errors import LogError
from rlt_fsm.wording import counted

from .common import ProgressLine, mistakes_in_one_sentence, print_json

HELP = """Write a run as one HTML file: verdict, occupancy, a lane for each request, batches, waits.

Example: rlt-audit report run.db -o report.html

The file needs no network and no program but a browser. Findings do not change the exit status:
`rlt-audit verify` is for that.

Exit status: 0 the file is written, 2 the log cannot be read or the file not be written.
"""


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
    as_json: Annotated[bool, typer.Option("--json", help="Tell as JSON what was written.")] = False,
) -> None:
    from audit.reporting.figures import run_view  # noqa: PLC0415  # numpy where it is needed
    from audit.reporting.page import render  # noqa: PLC0415  # jinja2 where it is needed

    with mistakes_in_one_sentence(), ProgressLine() as progress:
        view = run_view(db, run, progress=progress)
        text = render([view])
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise LogError(f"{out}: cannot be written: {error.strerror}") from error
    size = len(text.encode())
    if as_json:
        found = view.report
        print_json(
            {"out": str(out), "verdict": found.verdict, "events": found.events, "bytes": size}
        )
        return
    events = counted(view.report.events, "event")
    typer.echo(f"{out}  {view.report.verdict}: {events}, {round(size / 1000)} kB")
