"""Five requests on the demo model, under every scheduler mode, and what they must come to."""

import audit
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping

PROMPTS = {"a": [5, 6, 7], "b": [9] * 11, "c": [1, 2], "d": [3, 1, 4, 1, 5], "e": [8]}
WAYS = {
    "atomic": {},
    "split": {"split": True},
    "mixed": {"mode": "mixed", "split": True},
    "no-refill": {"mode": "no_refill"},
    "tight": {"num_blocks": 64, "policy": "priority", "enable_preemption": True},
    "starved": {"num_blocks": 36, "policy": "priority", "enable_preemption": True},
}


def config(*, is_async, num_blocks=256, split=False, execution=None, **scheduler):
    sections = {
        "scheduler": {"max_num_seqs": 3, "max_num_batched_tokens": 8, **scheduler},
        "cache": {"num_blocks": num_blocks, "block_size": 2, "incremental_allocation": True},
        "execution": {
            "atomic_prefill": not split,
            "async_scheduling": is_async,
            "max_in_flight": 4,
            **(execution or {}),
        },
        "exit": {"mode": "ouro_delayed"},
    }
    return from_mapping(sections)


def params_of(number):
    """Sampled, with exits of their own; the later are the more urgent."""
    return SamplingParams(
        max_tokens=7,
        temperature=0.8,
        seed=number,
        min_loops=1,
        exit_threshold=0.5,
        priority=-number,
    )


def requests():
    return [(name, prompt, params_of(i)) for i, (name, prompt) in enumerate(PROMPTS.items())]


def serve(engine):
    """Add the requests one after the other, a step between them, and step to the end: the last
    output of each.
    """
    found = {}
    for name, prompt, params in requests():
        engine.add_request(name, prompt, params)
        found |= {output.request_id: output for output in engine.step()}
    return found | finish(engine)


def finish(engine):
    """Step to the end: the last output of each request that was unfinished."""
    found = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output for output in engine.step()}
    return found


def ends_of(found):
    return {n: (o.token_ids, o.exit_depths, o.finish_reason) for n, o in found.items()}


def completions(runner, settings):
    """Each request's tokens, depths and end; the log is clean."""
    with EventLog.memory() as log:
        with Engine(runner, settings, log) as engine:
            found = serve(engine)
        assert all(output.finished for output in found.values())
        assert audit.verify(log).findings == []
    return ends_of(found)
