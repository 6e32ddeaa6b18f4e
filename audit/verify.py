"""`verify`: one pass over each run of a log, and the verdict on all of them."""

from rlt_fsm.arguments import function_or_none

from .reader import Source, open_log
from .report import SEVERITY, Report, RunReport
from .run_pass import Pass, Progress

__all__ = ["Report", "RunReport", "verify"]


def verify(
    db: Source,
    run: int | None = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Check every invariant over all runs of a log, or one; a log in parts is their sequence.

    The worst run decides: findings, then inconclusive (no runs, no events, or no `close`: still
    being written, crashed or cut off), then clean. The log is never written to.

    Raises:
        LogError: the log cannot be opened or read, or has no such run.
    """
    function_or_none("progress", progress)
    with open_log(db) as log:
        numbers = [info.run_id for info in log.runs()] if run is None else [run]
        runs = [
            Pass(log.run(number, from_checkpoint=True), progress).whole_run() for number in numbers
        ]
        verdicts = {part.verdict for part in runs} or {"inconclusive"}
        return Report(
            log=log.name,
            verdict=min(verdicts, key=SEVERITY.index),
            findings=[finding for part in runs for finding in part.findings],
            events=sum(part.events for part in runs),
            seconds=sum(part.seconds for part in runs),
            runs=runs,
        )
