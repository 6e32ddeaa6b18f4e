"""Who is preempted while others enter has its turn before worse requests do."""

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams, SchedulerConfig
from runner.sim import SimRunner

CONFIG = EngineConfig(
    scheduler=SchedulerConfig(max_num_seqs=3, policy="priority", enable_preemption=True),
    cache=CacheConfig(num_blocks=28, block_size=1, layout="shared"),
)


def needing(blocks, priority):
    """(prompt, params) of a request of so many blocks."""
    return [1] * 4, SamplingParams(max_tokens=blocks - 3, priority=priority, ignore_eos=True)


def test_a_victim_that_fits_comes_back_before_a_worse_request_enters():
    log = EventLog.memory()
    with Engine(SimRunner(), CONFIG, log) as engine:
        engine.add_request("large", *needing(20, priority=1))
        engine.add_request("small", *needing(8, priority=1))
        for _ in range(3):
            engine.step()
        engine.add_request("urgent", *needing(20, priority=0))  # small goes first, then large too
        engine.add_request("worse", *needing(8, priority=2))
        lives = {name: engine.state.by_id[name] for name in ("urgent", "small", "worse")}
        while lives["urgent"].status != "ACTIVE":
            engine.step()
        while {lives["small"].status, lives["worse"].status} == {"WAITING"}:
            engine.step()
        assert lives["small"].status == "ACTIVE"
        assert lives["worse"].status == "WAITING"
        while engine.has_unfinished_requests():
            engine.step()
    assert audit.verify(log).ok
