"""What `rlt-audit archive` does and says: one archive, or all but the newest events on and on."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Final, NamedTuple

import msgspec
import typer

from audit.archive import Archived, EngineState, NotVerifiedError, archive
from audit.rotation import PATIENCE_S, Rotated, rotate
from audit.rotator import Rotator
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.wording import counted

from .common import ProgressLine, Status, print_json
from .verify import shown_finding

KEEP_EVENTS: Final = 100_000
MOST_SHOWN: Final = 20  # findings


class Into(NamedTuple):
    """What only goes with --into, as it was given."""

    keep_events: int | None
    every_s: float | None
    patience_s: float | None

    def given(self) -> str | None:
        """The first option of these that was given."""
        names = ("--keep-events", "--every", "--patience")
        return next((n for n, value in zip(names, self, strict=True) if value is not None), None)


def archive_before(
    db: Path,
    output: Path | None,
    before_step: int,
    engine_state: EngineState,
    run: int | None,
    *,
    as_json: bool,
) -> None:
    """Take the events before a step out, and say so."""
    with ProgressLine() as progress:
        done = archive(
            db,
            output,
            before_step=before_step,
            engine_state=engine_state,
            run=run,
            progress=progress,
        )
    if as_json:
        print_json(done)
    else:
        typer.echo(_told(done))


def archive_into(
    db: Path,
    folder: Path,
    options: Into,
    engine_state: EngineState,
    run: int | None,
    *,
    as_json: bool,
) -> None:
    """Take all but the newest events out, and say so, a line for each archive."""
    rotator = Rotator(
        db,
        folder,
        keep_events=KEEP_EVENTS if options.keep_events is None else options.keep_events,
        engine_state=engine_state,
        run=run,
    )
    tell = _line_of_json if as_json else _line_of_text
    if options.every_s is None:
        _once(rotator, as_json=as_json)
        return
    with stopped_by_signals() as stop:
        rotated = rotate(
            rotator,
            every_s=options.every_s,
            stop=stop,
            told=tell,
            troubled=_troubled,
            patience_s=PATIENCE_S if options.patience_s is None else options.patience_s,
        )
    tell(rotated)
    raise typer.Exit(Status.INCONCLUSIVE if rotated.ended == "abandoned" else Status.WELL)


def _once(rotator: Rotator, *, as_json: bool) -> None:
    rotator.take_back()
    rotator.require_a_run()
    done = _turn(rotator)
    if done is None and not as_json:
        typer.echo(f"{rotator.path}: nothing is old enough to be taken")
    while done is not None:
        (_line_of_json if as_json else _line_of_text)(done)
        done = _turn(rotator) if rotator.is_more_due else None


def _turn(rotator: Rotator) -> Archived | None:
    with ProgressLine() as progress:
        return rotator.turn(progress)


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """SIGTERM and the first Ctrl-C are a request to end; the second Ctrl-C is an interrupt."""
    stop = Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def not_clean_is_no() -> Iterator[None]:
    """What is not clean is told, with the status of a "no"."""
    try:
        yield
    except NotVerifiedError as error:
        typer.echo(error)
        for finding in error.findings[:MOST_SHOWN]:
            typer.echo("\n".join(shown_finding(finding, "  ")))
        raise typer.Exit(Status.NO) from None


# ---- text ----------------------------------------------------------------------------------------


def _told(done: Archived) -> str:
    """An archive in a line."""
    where = "deleted" if done.archive is None else f"in {done.archive}"
    return (
        f"run {done.run_id}: seq {done.first_seq:,} to {done.last_seq:,} (up to step "
        f"{done.last_step}) are clean and now {where}; digest {done.digest}"
    )


def _line_of_text(what: Archived | Rotated) -> None:
    if isinstance(what, Archived):
        typer.echo(f"{_told(what)}; {counted(what.events_left, 'event')} stay")
    else:
        typer.echo(_ended(what))
    sys.stdout.flush()


def _line_of_json(what: Archived | Rotated) -> None:
    typer.echo(msgspec.json.encode(what).decode())
    sys.stdout.flush()


def _ended(rotated: Rotated) -> str:
    moved = f"{counted(rotated.events, 'event')} moved into {counted(rotated.archives, 'archive')}"
    match rotated.ended:
        case "over":
            return f"run {rotated.run_id} is over: {moved}"
        case "abandoned":
            return (
                f"run {rotated.run_id} has no end and nobody writes it any more: {moved}; once it "
                "is recovered, begin again"
            )
        case "stopped":
            return f"stopped: {moved}; begin again to go on"


def _troubled(trouble: LogUnavailable) -> None:
    typer.echo(
        f"not archived: {trouble}; the log keeps its events, tried again next time", err=True
    )
