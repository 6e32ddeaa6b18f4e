"""`rlt-audit`: the composition root that puts the commands together.

The commands that drive an engine get it from here: no other part of the auditor knows one.
"""

from collections.abc import Mapping

from rlt_fsm.command_line import console_script, new_program
from rlt_fsm.log.port import EventStore

from .commands import (
    archive,
    compare,
    diff,
    explain,
    export,
    join,
    replay,
    report,
    shrink,
    state,
    timeline,
    verify,
    watch,
)

ABOUT = """Check and question the event logs of rlt-fsm.

Example: rlt-audit verify run.db
"""
app = new_program("rlt-audit", ABOUT)
main = console_script(app, "rlt-audit")


def _redriver(source: EventStore, run_id: int, settings: Mapping[str, str]) -> replay.Redrive:
    from runner.recorded import Redrive  # noqa: PLC0415  # no engine where none is driven
    from runner.terminal import log_to_stderr  # noqa: PLC0415  # the same

    log_to_stderr("critical")  # recorded failures fail again on purpose
    return Redrive(source, run_id, settings)


def _engine_state(log: EventStore, run_id: int, seq: int) -> str:
    from rlt_fsm.checkpoint import to_json  # noqa: PLC0415  # no engine where none is asked
    from rlt_fsm.replay import fold  # noqa: PLC0415  # the same

    return to_json(fold(log, run_id, until_seq=seq))


def _runs() -> shrink.Runs:
    from runner.sim_runs import SimRuns  # noqa: PLC0415  # no engine where none is driven
    from runner.terminal import log_to_stderr  # noqa: PLC0415  # the same

    log_to_stderr("critical")  # engines may stop here on purpose
    return SimRuns()


for command in (verify, watch, state, timeline, explain, diff, compare, export, join, report):
    command.register(app)
replay.register(app, _redriver)
archive.register(app, _engine_state)
shrink.register(app, _runs)
