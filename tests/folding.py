"""How a test compares an engine with what its log folds to."""

from rlt_fsm.replay import fold


def differences(engine):
    """What the fold of an engine's log has otherwise than the engine, by the state's parts."""
    live, folded = engine.state.as_dict(), fold(engine.log, engine.run_id).as_dict()
    return {name: (live[name], folded[name]) for name in live if live[name] != folded[name]}
