"""Takes a verified beginning of a run out of its log: into an archive, or away for good.

What is taken is checked first, event by event, and the pass that did so leaves what it had in hand
in the log's checkpoint, so that a later pass goes on from there and comes to the same verdict. The
engine's own state, which `recover` goes on from, is told by whoever is handed in: there is no
engine here.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlt_fsm.errors import LogError
from rlt_fsm.log.archiving import move_prefix
from rlt_fsm.log.port import Checkpoint, EventStore

from .findings import Finding
from .reader import Log, RunLog, open_log
from .recount import Step
from .run_pass import Pass, Progress
from .steps import whole_run

# (log, run, seq) → the text of the state that an engine had after that event.
EngineState = Callable[[EventStore, int, int], str]


class NotVerifiedError(LogError):
    """What should be taken out of a log is not clean; `findings` say why."""

    def __init__(self, message: str, findings: list[Finding]) -> None:
        super().__init__(message)
        self.findings = findings


class NothingToTakeError(LogError):
    """There is no such step yet, nothing before it, or no cut just there."""


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out: the events from `first_seq` to `last_seq`, the last of step `last_step`.

    `archive` is the file that has them now, None where they were deleted; `digest` is the chain's
    after them; `events_left` is how many stay, of those that were there when it began.
    """

    run_id: int
    archive: str | None
    first_seq: int
    last_seq: int
    last_step: int
    digest: str
    events_left: int


class Cut(NamedTuple):
    """What stands where a run is cut; `has_recovery`: a `recover` is before it."""

    checkpoint: Checkpoint
    has_recovery: bool


def archive(
    db: str | os.PathLike[str],
    into: str | os.PathLike[str] | None,
    *,
    before_step: int,
    engine_state: EngineState,
    run: int | None = None,
    progress: Progress | None = None,
) -> Archived:
    """Take the events before a step out of a log, once they are verified.

    The log may be written meanwhile. `into` None deletes them.

    Raises:
        NotVerifiedError: something is wrong with them; nothing changes.
        LogError: the log or the archive cannot be read or written, or there is no such step yet.
    """
    path, target = Path(db), None if into is None else Path(into)
    with open_log(path) as log:
        number = log.newest() if run is None else run
        reading = log.run(number, from_checkpoint=True)
        cut = verified_cut(log, reading, before_step, engine_state, progress)
    return move_out(path, target, reading, cut)


def verified_cut(
    log: Log,
    run: RunLog,
    before_step: int,
    engine_state: EngineState,
    progress: Progress | None,
    *,
    nearby: bool = False,
) -> Cut:
    """Verify a run up to a step, and tell what was come to there.

    `nearby`: where it cannot be cut just there, a little later.

    Raises:
        NotVerifiedError: something is wrong with what is before that step.
        NothingToTakeError: it cannot be cut there.
    """
    last, kept, has_recovery = _verified(log, run, before_step, progress, nearby=nearby)
    assert last.row is not None, "a verified step is sealed"
    number = run.info.run_id
    checkpoint = Checkpoint(
        run_id=number,
        step=last.number,
        seq=last.row.last_seq,
        digest=last.row.digest,
        engine=engine_state(log.store, number, last.row.last_seq),
        audit=kept,
        archive="no file any more",
    )
    return Cut(checkpoint, has_recovery)


def move_out(
    path: Path,
    target: Path | None,
    run: RunLog,
    cut: Cut,
    *,
    is_there: bool = False,
) -> Archived:
    """Move what is before a cut into an archive, None: away; `is_there`: it is copied.

    Raises:
        LogUnavailable: it cannot be stored, or another process archived it meanwhile.
    """
    checkpoint = cut.checkpoint
    if target is not None:
        checkpoint = checkpoint._replace(archive=target.name)
    after = move_prefix(path, target, checkpoint, has_recovery=cut.has_recovery, is_there=is_there)
    return Archived(
        run_id=checkpoint.run_id,
        archive=None if target is None else str(target),
        first_seq=after + 1,
        last_seq=checkpoint.seq,
        last_step=checkpoint.step,
        digest=checkpoint.digest.hex(),
        events_left=run.info.last_seq - checkpoint.seq,
    )


def _verified(
    log: Log, run: RunLog, before_step: int, progress: Progress | None, *, nearby: bool
) -> tuple[Step, str, bool]:
    """The last step before `before_step`, what a pass has in hand after it, and whether any of
    those steps is a recovery.
    """
    passing, last, kept, has_recovery = Pass(run, progress), None, None, False
    place = f"{log.name}: run {run.info.run_id}"
    for step in whole_run(run):
        if step.number >= before_step and step.row is not None:
            _require_clean(passing, place, before_step)
            kept = passing.keep() if last is not None and last.row is not None else None
            if not nearby or kept is not None:
                break
        passing.take(step)
        last = step
        has_recovery |= step.is_recovery
    else:
        _require_clean(passing, place, before_step)
        raise NothingToTakeError(
            f"{place} has no step {before_step} that has ended: take an earlier one"
        )
    if last is None:
        raise NothingToTakeError(
            f"{place} has nothing before step {before_step}: it begins with that step"
        )
    if kept is None:
        raise NothingToTakeError(
            f"{place} cannot be cut before step {before_step}: take one nearby"
        )
    return last, kept, has_recovery


def _require_clean(passing: Pass, place: str, before_step: int) -> None:
    if findings := passing.new_findings():
        why = f"{place} is not clean before step {before_step}: {findings[0].message}"
        raise NotVerifiedError(why, findings)
