"""How a test compares an engine with what its log folds to."""

from rlt_fsm import EventLog
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.replay import fold


def differences(engine):
    """What the fold of an engine's log has otherwise than the engine, by the state's parts."""
    live, folded = engine.state.as_dict(), _folded(engine).as_dict()
    return {name: (live[name], folded[name]) for name in live if live[name] != folded[name]}


def _folded(engine):
    try:
        return fold(engine.log, engine.run_id)
    except LogUnavailable:  # the engine closed it, since it had opened it
        with EventLog.open_for_reading(engine.log.name) as log:
            return fold(log, engine.run_id)
