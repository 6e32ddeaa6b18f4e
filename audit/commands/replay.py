"""`rlt-audit replay`: today's scheduler through a recorded run, and what it did differently.

Who can drive an engine is handed in by `cli.py`: the auditor itself has none.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer

from audit.diff import Diff, diff
from audit.reader import open_log
from audit.words import joined, shown
from rlt_fsm.config import settings_of
from rlt_fsm.errors import LogError
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.port import EventStore
from rlt_fsm.wording import counted

from .common import ProgressLine, mistakes_in_one_sentence, print_json
from .diff import Level, LevelName, status_of
from .diff_text import render

HELP = """Drive today's scheduler through a recorded run, without its model, and compare.

Example: rlt-audit replay run.db --set scheduler.mode=mixed -o what-if.db

The recorded arrivals, aborts, crashes, device failures, exit depths and tokens are given again, so
that a log from a GPU is replayed anywhere. Same revision and configuration: the same digest; only a
run of which a crash left half a step (as durability `step` may) differs from there on, since that
step is taken to its end first. Beyond the record a token runs to full depth and is token 0, marked
`unrecorded` in the new log. A is the recorded run, B the new one.

Exit status: 0 the same, 1 different, 2 the log cannot be driven again or the settings cannot be
used, 3 the same as far as the record goes, but it has no end.
"""

OnStep = Callable[[int, int], None]  # (step, last step of the record)


class Redriven(Protocol):
    """What came of a re-drive."""

    @property
    def run_id(self) -> int:
        """The new run's number."""

    @property
    def unrecorded(self) -> Mapping[str, list[int]]:
        """`id#generation` → output indices that the record does not have."""

    @property
    def cut_off(self) -> bool:
        """Whether requests were still live when it was given up."""


class Redrive(Protocol):
    """A re-drive that is checked and not begun."""

    def run(self, target: EventLog, on_step: OnStep | None = None) -> Redriven:
        """Make it."""


Redriver = Callable[[EventStore, int, Mapping[str, str]], Redrive]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the comparison, and how far the new run went beyond the record."""

    db: str | None
    run_id: int
    unrecorded: Mapping[str, list[int]]
    cut_off: bool
    diff: Diff


def register(app: typer.Typer, redriver: Redriver) -> None:
    """Add the command to `app`; `redriver` prepares a re-drive."""

    @app.command(name="replay", help=HELP)
    def _command(
        db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
        *,
        settings: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="SECTION.FIELD=VALUE",
                help="Change a field of the recorded config; repeat it.",
            ),
        ] = None,
        new: Annotated[
            str | None,
            typer.Option("--db", "-o", metavar="NEW", help="Keep the new log here, as a new run."),
        ] = None,
        run: Annotated[
            int | None, typer.Option(help="The run; by default the newest.", metavar="N")
        ] = None,
        level: Level = LevelName.EVENTS,
        as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    ) -> None:
        with mistakes_in_one_sentence(), ProgressLine() as progress:
            changes = settings_of(settings or [])
            answer = _replay(db, run, changes, new, level, redriver, progress)
        if as_json:
            print_json(answer)
        else:
            typer.echo(as_text(answer))
        raise typer.Exit(status_of(answer.diff))


def _replay(
    db: str,
    run: int | None,
    settings: Mapping[str, str],
    new: str | None,
    level: LevelName,
    redriver: Redriver,
    progress: ProgressLine,
) -> Replayed:
    if new is not None and _is_same_file(db, new):
        raise LogError(f"{new}: this is the log that is replayed; give the new one another name")
    with EventLog.open_for_reading(db) as source:
        run_id = open_log(source).newest() if run is None else run
        redrive = redriver(source, run_id, settings)
        with EventLog.memory() if new is None else EventLog.open(new) as target:
            made = redrive.run(
                target, lambda step, last: progress.count(step, last, "drove", "step")
            )
            other = nullcontext(target) if new is None else EventLog.open_for_reading(new)
            with other as written:
                compared = diff(
                    source,
                    written,
                    run_a=run_id,
                    run_b=made.run_id,
                    level=level.value,
                    anyway=True,  # what was given is the same by construction
                    progress=progress,
                )
    return Replayed(
        db=new,
        run_id=made.run_id,
        unrecorded=made.unrecorded,
        cut_off=made.cut_off,
        diff=compared,
    )


def _is_same_file(one: str, other: str) -> bool:
    return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)


def as_text(answer: Replayed) -> str:
    """The comparison, and what went beyond the record."""
    lines = [render(answer.diff)]
    if answer.unrecorded:
        names = joined(shown(name.removesuffix("#1")) for name in answer.unrecorded)
        count = sum(map(len, answer.unrecorded.values()))
        lines.append(f"beyond the record: {counted(count, 'output')} of {names} (token 0)")
    if answer.cut_off:
        lines.append("cut off: requests were still live long after the record's end")
    if answer.db is not None:
        lines.append(f"the new log: {answer.db} run {answer.run_id}")
    return "\n".join(lines)
