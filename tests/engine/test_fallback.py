"""Why a runner does something otherwise than it was asked to: `open`, or `recover`, says it."""

import pytest
from msgspec.structs import replace
from recovery.cuts import first_events
from recovery.scenes import outputs_in
from told import events

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, ExecutionConfig, SamplingParams
from rlt_fsm.errors import ConfigError
from rlt_fsm.record import read_record
from runner import SimRunner
from runner.recorded import Redrive

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=64, block_size=4))
GRAPHS = replace(CONFIG, execution=ExecutionConfig(cuda_graphs=True))
REASON = "no-cuda-graphs cause=out-of-memory"


class Short(SimRunner):
    """Has no memory for graphs."""

    fallback = REASON


class Slow(Short):
    """Resolves a config that asks for graphs to one without."""

    def start(self, config):
        facts, complete = super().start(config)
        without = replace(complete.execution, cuda_graphs=False)
        return facts, replace(complete, execution=without)


class Silent(Slow):
    """Does not say why."""

    fallback = None


class Smaller(Slow):
    """Has less of what decides results, too, for whatever reason it tells."""

    def start(self, config):
        facts, complete = super().start(config)
        return facts, replace(complete, cache=replace(complete.cache, num_blocks=32))


def serve(engine):
    while engine.has_unfinished_requests():
        engine.step()


def logged(runner, config=CONFIG):
    log = EventLog.memory()
    with Engine(runner, config, log) as engine:
        engine.add_request("a", [1, 2], SamplingParams(max_tokens=2))
        serve(engine)
    return log


def broken_off(after, config=GRAPHS):
    """The log of a run that had graphs, up to an event."""
    return first_events(logged(SimRunner(), config), after)


def reasons(log):
    """Of the events that begin a run or go on with it."""
    own = {"open", "recover"}
    return [(trigger, row.reason) for trigger, row in events(log) if trigger in own]


def test_the_first_event_tells_why_and_the_log_is_clean():
    log = logged(Short())
    (run,) = log.reader().runs()
    assert reasons(log) == [("open", REASON)]
    assert run.outcome == "drained"
    assert audit.verify(log).verdict == "clean"


def test_a_runner_that_does_as_it_was_asked_gives_no_reason():
    assert reasons(logged(SimRunner())) == [("open", None)]


def test_a_run_driven_again_tells_the_same():
    log, again = logged(Short()), EventLog.memory()
    Redrive(log, 1, {}).run(again)
    assert read_record(again, 1).fallback == REASON
    assert again.reader().runs()[0].digest == log.reader().runs()[0].digest


# ---- a run that had graphs goes on where there are none -----------------------------------------


def test_a_run_goes_on_slower_and_its_recovery_says_why():
    log = broken_off(12)
    with Engine.recover(log, Slow()) as engine:
        serve(engine)
    assert reasons(log) == [("open", None), ("recover", REASON)]
    assert outputs_in(log) == outputs_in(logged(SimRunner(), GRAPHS))
    assert audit.verify(log).verdict == "clean"


def test_the_config_of_the_run_stays_what_it_was_and_the_next_recovery_asks_for_it_again():
    log = broken_off(12)
    for runner in (Slow(), SimRunner()):
        engine = Engine.recover(log, runner)
        assert engine.config.execution.cuda_graphs
        engine.step()
    with Engine.recover(log, Slow()) as engine:
        serve(engine)
    assert reasons(log) == [
        ("open", None),
        ("recover", REASON),
        ("recover", None),
        ("recover", REASON),
    ]
    assert audit.verify(log).verdict == "clean"


def test_a_run_without_its_first_event_is_opened_with_the_reason():
    log = broken_off(0)
    with Engine.recover(log, Slow()):
        pass
    assert reasons(log) == [("open", REASON)]
    assert audit.verify(log).verdict == "clean"


@pytest.mark.parametrize(
    ("runner", "sentence"),
    [
        (Silent(), r"config\.execution\.cuda_graphs=False of this runner, True of run 1"),
        (Smaller(), r"config\.cache\.num_blocks=32 of this runner, 64 of run 1"),
    ],
)
def test_what_says_no_reason_or_decides_results_is_refused_and_nothing_is_recorded(
    runner, sentence
):
    log = broken_off(12)
    with pytest.raises(ConfigError, match=sentence):
        Engine.recover(log, runner)
    assert log.reader().runs()[0].last_seq == 12
