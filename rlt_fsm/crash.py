"""A crash on purpose: an engine loses what it has in memory, and goes on from its log.

What a workload's `crash` action does, in one process and the same each time: all that was recorded
is in the log, as though the process had been killed right after a commit. Kills at any moment are
for processes of their own.
"""

from . import recovery
from .engine import Engine


def crash(engine: Engine) -> None:
    """Break an engine's run off and recover it, in place; its runner starts anew.

    Raises:
        LogError: the log cannot be written or read.
    """
    engine._recorder.commit()  # noqa: SLF001  # the one who breaks an engine must reach into it
    crashed = recovery.take_up(engine.log, engine._runner, engine.run_id)  # noqa: SLF001  # the same
    engine._go_on(crashed, engine._runner, verdicts=engine._verdicts)  # noqa: SLF001  # the same
