"""`rlt-audit archive`: takes the verified beginning of a run out of its log.

Who can tell an engine's state is handed in by `cli.py`: the auditor itself has none.
"""

from pathlib import Path
from typing import Annotated

import typer

from audit.archive import Archived, EngineState, NotVerifiedError, archive

from .common import ProgressLine, mistakes_in_one_sentence, print_json
from .verify import shown_finding

HELP = """Take the events before a step out of a log, into an archive, once they are verified.

Example: rlt-audit archive run.db --before-step 5000 -o run.0001.db

The log may be written meanwhile. It begins with a checkpoint then, from which it is verified,
watched and recovered; `rlt-audit verify run.0001.db run.db` reads all of it. --discard deletes the
events instead. The file does not shrink: what comes next uses the space.

Exit status: 0 done, 1 the events are not clean and stay where they are, 2 the log or the archive
cannot be read or written, or has no such step.
"""


def register(app: typer.Typer, engine_state: EngineState) -> None:
    """Add the command to `app`; `engine_state` tells what a run had come to."""

    @app.command(name="archive", help=HELP)
    def _archive(
        db: Annotated[Path, typer.Argument(help="The log's file.", metavar="DB")],
        before_step: Annotated[
            int, typer.Option(help="The first step that stays.", metavar="N", min=1)
        ],
        output: Annotated[
            Path | None, typer.Option("-o", help="The archive.", metavar="ARCHIVE")
        ] = None,
        run: Annotated[
            int | None, typer.Option(help="The run; by default the newest.", metavar="N")
        ] = None,
        *,
        discard: Annotated[
            bool, typer.Option("--discard", help="Delete the events for good.")
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print what was done as JSON.")
        ] = False,
    ) -> None:
        if (output is None) != discard:
            raise typer.BadParameter("give -o ARCHIVE, or --discard to delete the events")
        with mistakes_in_one_sentence("the log is whole, begin again"):
            try:
                with ProgressLine() as progress:
                    done = archive(
                        db,
                        output,
                        before_step=before_step,
                        engine_state=engine_state,
                        run=run,
                        progress=progress,
                    )
            except NotVerifiedError as error:
                typer.echo(error)
                for finding in error.findings[:20]:
                    typer.echo("\n".join(shown_finding(finding, "  ")))
                raise typer.Exit(1) from None
        if as_json:
            print_json(done)
        else:
            typer.echo(_told(done))


def _told(done: Archived) -> str:
    where = "deleted" if done.archive is None else f"in {done.archive}"
    return (
        f"run {done.run_id}: seq {done.first_seq:,} to {done.last_seq:,} (up to step "
        f"{done.last_step}) are clean and now {where}; digest {done.digest}"
    )
