"""Takes a verified beginning of a run out of its log: into an archive, or away for good.

What is taken is checked first, event by event, and the pass that did so leaves what it had in hand
in the log's checkpoint, so that a later pass goes on from there and comes to the same verdict. The
engine's own state, which `recover` goes on from, is told by whoever is handed in: there is no
engine here.
"""

import os
from collections.abc import Callable
from pathlib import Path

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


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out: the events from `first_seq` to `last_seq`, the last of step `last_step`.

    `archive` is the file that has them now, None where they were deleted; `digest` is the chain's
    after them.
    """

    run_id: int
    archive: str | None
    first_seq: int
    last_seq: int
    last_step: int
    digest: str


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
        last, kept, has_recovery = _verified(log, reading, before_step, progress)
        assert last.row is not None, "a verified step is sealed"
        checkpoint = Checkpoint(
            run_id=number,
            step=last.number,
            seq=last.row.last_seq,
            digest=last.row.digest,
            engine=engine_state(log.store, number, last.row.last_seq),
            audit=kept,
            archive="no file any more" if target is None else target.name,
        )
    move_prefix(path, target, checkpoint, has_recovery=has_recovery)
    return Archived(
        run_id=number,
        archive=None if target is None else str(target),
        first_seq=1 if reading.checkpoint is None else reading.checkpoint.seq + 1,
        last_seq=checkpoint.seq,
        last_step=checkpoint.step,
        digest=checkpoint.digest.hex(),
    )


def _verified(
    log: Log, run: RunLog, before_step: int, progress: Progress | None
) -> tuple[Step, str, bool]:
    """The last step before `before_step`, what a pass has in hand after it, and whether any of
    those steps is a recovery.
    """
    passing, last, has_recovery = Pass(run, progress), None, False
    place = f"{log.name}: run {run.info.run_id}"
    for step in whole_run(run):
        if step.number >= before_step and step.row is not None:
            break
        passing.take(step)
        last = step
        has_recovery |= step.is_recovery
    else:
        raise LogError(f"{place} has no step {before_step} that has ended: take an earlier one")
    if last is None:
        raise LogError(f"{place} has nothing before step {before_step}: it begins with that step")
    if findings := passing.new_findings():
        raise NotVerifiedError(
            f"{place} is not clean before step {before_step}: {findings[0].message}", findings
        )
    kept = passing.keep() if last.row is not None else None
    if kept is None:
        raise LogError(f"{place} cannot be cut before step {before_step}: take one nearby")
    return last, kept, has_recovery
