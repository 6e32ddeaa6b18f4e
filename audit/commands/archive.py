"""`rlt-audit archive`: takes the verified beginning of a run out of its log, once or on and on.

Who can tell an engine's state is handed in by `cli.py`: the auditor itself has none.
"""

from pathlib import Path
from typing import Annotated

import typer

from audit.archive import EngineState
from audit.rotation import PATIENCE_S

from .archiving import KEEP_EVENTS, Into, archive_before, archive_into, not_clean_is_no
from .common import mistakes_in_one_sentence

HELP = """Take the events before a step out of a log, into an archive, once they are verified.

Example: rlt-audit archive run.db --before-step 5000 -o run.0001.db

With --into DIR it takes all but the newest events, and names the archive itself, by run and last
step; with --every S too it goes on and on until the run is over. SIGTERM or Ctrl-C ends it.

The log may be written meanwhile. It begins with a checkpoint then, from which it is verified,
watched and recovered; `rlt-audit verify run.0001.db run.db` reads all of it. --discard deletes the
events instead. The file does not shrink: what comes next uses the space.

Exit status: 0 done, 1 the events are not clean and stay where they are, 2 the log or the archive
cannot be read or written, or has no such step, 3 nobody writes the log any more and its run has no
end.
"""


BeforeStep = Annotated[
    int | None, typer.Option(help="The first step that stays.", metavar="N", min=1)
]
Output = Annotated[Path | None, typer.Option("-o", help="The archive.", metavar="ARCHIVE")]
Folder = Annotated[
    Path | None,
    typer.Option(help="A folder for all but the newest events.", metavar="DIR"),
]
KeepEvents = Annotated[
    int | None,
    typer.Option(
        help=f"With --into: how many stay at least; by default {KEEP_EVENTS:,}.", metavar="N", min=1
    ),
]
Every = Annotated[
    float | None,
    typer.Option(
        help="With --into: seconds from one archive to the next, until the run is over.",
        metavar="S",
        min=0.01,
    ),
]
Patience = Annotated[
    float | None,
    typer.Option(
        help="With --every: seconds to wait for a file, a run, or a writer that is gone; by "
        f"default {PATIENCE_S:g}.",
        metavar="S",
        min=0,
    ),
]


def register(app: typer.Typer, engine_state: EngineState) -> None:
    """Add the command to `app`; `engine_state` tells what a run had come to."""

    @app.command(name="archive", help=HELP)
    def _archive(
        db: Annotated[Path, typer.Argument(help="The log's file.", metavar="DB")],
        before_step: BeforeStep = None,
        output: Output = None,
        into: Folder = None,
        keep_events: KeepEvents = None,
        every: Every = None,
        patience: Patience = None,
        run: Annotated[
            int | None, typer.Option(help="The run; by default the newest.", metavar="N")
        ] = None,
        *,
        discard: Annotated[
            bool, typer.Option("--discard", help="Delete the events for good.")
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print what was done as JSON; with --into, as lines.")
        ] = False,
    ) -> None:
        options = Into(keep_events=keep_events, every_s=every, patience_s=patience)
        _require_one_place(before_step, output, into, options, discard=discard)
        with mistakes_in_one_sentence("the log is whole, begin again"), not_clean_is_no():
            if into is not None:
                archive_into(db, into, options, engine_state, run, as_json=as_json)
            elif before_step is not None:
                archive_before(db, output, before_step, engine_state, run, as_json=as_json)


def _require_one_place(
    before_step: int | None,
    output: Path | None,
    into: Path | None,
    options: Into,
    *,
    discard: bool,
) -> None:
    if into is None:
        if given := options.given():
            raise typer.BadParameter(f"{given} goes with --into DIR")
        if before_step is None:
            raise typer.BadParameter(
                "give --before-step N, or --into DIR to take all but the newest events"
            )
        if (output is None) != discard:
            raise typer.BadParameter("give -o ARCHIVE, or --discard to delete the events")
    elif before_step is not None or output is not None or discard:
        raise typer.BadParameter(
            "--into DIR says itself which step and which archive: leave --before-step, -o and "
            "--discard away"
        )
    elif options.patience_s is not None and options.every_s is None:
        raise typer.BadParameter("--patience goes with --every S")
