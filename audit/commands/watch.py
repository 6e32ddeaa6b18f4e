"""`rlt-audit watch`: findings of a run as they land, while another process writes it."""

import sys
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from audit.findings import Finding
from audit.verify import Report
from audit.watch import LOOK_EVERY_S, PATIENCE_S, watch
from rlt_fsm.progress_line import Pace
from rlt_fsm.wording import counted

from .common import ProgressLine, mistakes_in_one_sentence, print_text
from .verify import STATUS_OF, shown_finding, summary

HELP = """Follow a run that another process is writing, and report what is wrong as it lands.

Example: rlt-audit watch run.db

The file, and the run in it, may appear later. The watch ends with the run: when it is closed, when
the process that wrote it is gone, or, where that cannot be told, after --patience seconds of
silence. Ctrl-C ends it too. Where events are archived before they were checked, it goes on from the
checkpoint behind them and says so.

Exit status: 0 clean, 1 findings, 2 the log cannot be read or never came, 3 inconclusive (the run
has no end).
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="watch", help=HELP)(_watch)


def _watch(
    db: Annotated[str, typer.Argument(help="The log's file.", metavar="DB")],
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a file or a run.", metavar="S", min=0)
    ] = PATIENCE_S,
    look_every: Annotated[
        float, typer.Option(help="Seconds between two looks.", metavar="S", min=0.01, max=60)
    ] = LOOK_EVERY_S,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print findings, then the report, as lines of JSON.")
    ] = False,
) -> None:
    with mistakes_in_one_sentence(), ProgressLine() as line:
        told = _Told(line, _as_json if as_json else _as_text)
        report = watch(
            db,
            run,
            found=told.found,
            seen=told.seen,
            patience_s=patience,
            look_every_s=look_every,
        )
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        print_text(render(report), STATUS_OF[report.verdict])
    raise typer.Exit(STATUS_OF[report.verdict])


class _Told:
    """Findings on stdout as they come; between them a line on stderr that says how far it is."""

    def __init__(self, line: ProgressLine, tell: Callable[[Finding], None]) -> None:
        self._line = line
        self._tell = tell
        self._pace = Pace()

    def found(self, finding: Finding) -> None:
        """A finding: the line makes room for it."""
        self._line.clear()
        self._tell(finding)

    def seen(self, seq: int) -> None:
        """The last event that was checked."""
        self._pace.note(seq, 0)
        self._line.show(f"checked {counted(seq, 'event')}{self._pace.text()}")


def _as_text(finding: Finding) -> None:
    typer.echo("\n".join(shown_finding(finding, "")))
    sys.stdout.flush()


def _as_json(finding: Finding) -> None:
    typer.echo(msgspec.json.encode(finding).decode())
    sys.stdout.flush()


def render(report: Report) -> str:
    """The last lines of a watch: what it came to, and what it took on trust."""
    if not report.runs:
        return "inconclusive: no run has begun"
    (part,) = report.runs
    why = f": {part.why}" if part.why is not None else ""
    line = f"run {part.run_id}, {part.steps:,} steps: {summary(report)}{why}"
    return line if part.trusted is None else f"note: {part.trusted}\n{line}"
