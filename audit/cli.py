"""`rlt-audit`: the composition root that puts the commands together.

The commands that drive an engine get it from here: no other part of the auditor knows one.
"""

from collections.abc import Mapping

from rlt_fsm.command_line import console_script, new_program
from rlt_fsm.log.port import EventStore

from .commands import (
    compare,
    diff,
    explain,
    export,
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


def _runs() -> shrink.Runs:
    from runner.sim_runs import SimRuns  # noqa: PLC0415  # no engine where none is driven
    from runner.terminal import log_to_stderr  # noqa: PLC0415  # the same

    log_to_stderr("critical")  # engines may stop here on purpose
    return SimRuns()


for command in (verify, watch, state, timeline, explain, diff, compare, export, report):
    command.register(app)
replay.register(app, _redriver)
shrink.register(app, _runs)
