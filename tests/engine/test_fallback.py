"""Why a runner does something otherwise than it was asked to: the first event says it."""

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams
from rlt_fsm.log.port import EventRow
from rlt_fsm.record import read_record
from runner import SimRunner
from runner.recorded import Redrive

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=64, block_size=4))
REASON = "no-cuda-graphs cause=out-of-memory"


class Short(SimRunner):
    """Has no memory for graphs."""

    fallback = REASON


def logged(runner):
    log = EventLog.memory()
    with Engine(runner, CONFIG, log) as engine:
        engine.add_request("a", [1, 2], SamplingParams(max_tokens=2))
        while engine.has_unfinished_requests():
            engine.step()
    return log


def test_the_first_event_tells_why_and_the_log_is_clean():
    log = logged(Short())
    (first, *_), (run,) = log.reader().events(1), log.reader().runs()
    assert EventRow(*first).reason == REASON
    assert run.outcome == "drained"
    assert audit.verify(log).verdict == "clean"


def test_a_runner_that_does_as_it_was_asked_gives_no_reason():
    (first, *_) = logged(SimRunner()).reader().events(1)
    assert EventRow(*first).reason is None


def test_a_run_driven_again_tells_the_same():
    log, again = logged(Short()), EventLog.memory()
    Redrive(log, 1, {}).run(again)
    assert read_record(again, 1).fallback == REASON
    assert again.reader().runs()[0].digest == log.reader().runs()[0].digest
