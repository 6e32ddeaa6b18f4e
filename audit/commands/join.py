"""`rlt-audit join`: the parts of a log as one file again."""

from pathlib import Path
from typing import Annotated

import typer

from rlt_fsm.log.joining import join

from .common import mistakes_in_one_sentence, print_json

HELP = """Put a log and its archives together again, for the commands that need a whole run.

Example: rlt-audit join run.0001.db run.0002.db run.db -o whole.db

Exit status: 0 done, 2 a part cannot be read, is missing or is not one of this log.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="join", help=HELP)(_join)


def _join(
    parts: Annotated[
        list[Path], typer.Argument(help="The archives, oldest first, then the log.", metavar="DB")
    ],
    output: Annotated[Path, typer.Option("-o", help="The whole log.", metavar="WHOLE")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence("no file was made"):
        join(parts, output)
    if as_json:
        print_json({"db": str(output), "parts": [str(part) for part in parts]})
    else:
        typer.echo(f"{output}: {len(parts)} parts in one")
