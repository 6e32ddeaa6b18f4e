"""How a test compares an engine with what its log folds to."""

from rlt_fsm import EventLog
from rlt_fsm.errors import LogUnavailable
from rlt_fsm.replay import fold


def differences(engine):
    """What the fold of an engine's log has otherwise than the engine, by the state's parts."""
    folded = _folded(engine)
    live, due = engine.state.as_dict(), folded.as_dict()
    found = {name: (live[name], due[name]) for name in live if live[name] != due[name]}
    return found | _ids_told_otherwise(engine, folded.generations.kept())


def _folded(engine):
    try:
        return fold(engine.log, engine.run_id)
    except LogUnavailable:  # the engine closed it, since it had opened it
        with EventLog.open_for_reading(engine.log.name) as log:
            return fold(log, engine.run_id)


def _ids_told_otherwise(engine, used):
    """Ids of which the engine says, or its log finds, otherwise how often they were used."""
    try:
        told = {name: engine.state.generations.newest(name) for name in used}
    except LogUnavailable:  # the same
        return {}
    return {name: (told[name], used[name]) for name in used if told[name] != used[name]}
