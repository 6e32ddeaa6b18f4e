"""`rlt-audit timeline`: a request's life, one line for each of its events."""

from typing import Annotated

import typer

from audit.replay import replay
from audit.timeline import Timeline, timeline
from audit.words import shown
from rlt_fsm.wording import counted

from .common import mistakes_in_one_sentence, print_json
from .tables import aligned

HELP = """Tell a request's life, one line for each of its events.

Example: rlt-audit timeline run.db --request a

Every line has the event's seq and step, the steps that the request had waited for it, what
happened, and which machines moved. An id that was used again has a generation: a#2 is the second
use of a.

Exit status: 0, or 2 where the log cannot be read or has no such request.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="timeline", help=HELP)(_timeline)


def _timeline(
    db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
    request: Annotated[str, typer.Option(help="The request.", metavar="ID[#GENERATION]")],
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence(), replay(db, run) as opened:
        told = timeline(opened, request)
    if as_json:
        print_json(told)
    else:
        typer.echo(render(told))


def render(told: Timeline) -> str:
    """The timeline as text."""
    rows = [("seq", "step", "waited", "what", "moved")]
    rows += [
        (
            str(entry.seq),
            str(entry.step),
            counted(entry.waited, "step") if entry.waited else "",
            shown(entry.what),
            entry.moved,
        )
        for entry in told.entries
    ]
    waited = f"waited {counted(told.waited, 'step')} in all"
    events = counted(len(told.entries), "event")
    head = f"request {shown(told.request)} in run {told.run_id}: {events}, {waited}"
    return "\n".join([head, "", *aligned(rows, right=(0, 1, 2))])
