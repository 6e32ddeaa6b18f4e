"""Who is preempted while others enter has its turn before worse requests do, and enters to run."""

import audit
from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams, SchedulerConfig
from rlt_fsm.log.port import EventRow
from rlt_fsm.machines import public_trigger
from rlt_fsm.moves import MOVES
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


def triggers(log):
    """Every event's trigger and request, in order."""
    rows = map(EventRow._make, log.reader().events(1))
    return [(public_trigger(MOVES[row.move].trigger), row.ref) for row in rows]


def test_a_request_enters_only_beside_what_running_ones_need_for_their_next_token():
    log = EventLog.memory()
    cache = CacheConfig(num_blocks=3, block_size=1, layout="shared", incremental_allocation=True)
    config = EngineConfig(scheduler=CONFIG.scheduler, cache=cache)
    with Engine(SimRunner(), config, log) as engine:
        for name, prompt, outputs, priority in (("w", 1, 3, 1), ("a", 1, 3, 0), ("b", 2, 2, 0)):
            params = SamplingParams(max_tokens=outputs, priority=priority, ignore_eos=True)
            engine.add_request(name, [1] * prompt, params)
        while engine.has_unfinished_requests():
            engine.step()
    idle = set()  # has entered and not run since
    for trigger, ref in triggers(log):
        if trigger in {"admit", "resume"}:
            idle.add(ref)
        elif trigger == "select":
            idle.discard(ref)
        assert ref not in idle or trigger not in {"yield", "offload", "rewind"}
    assert audit.verify(log).ok
