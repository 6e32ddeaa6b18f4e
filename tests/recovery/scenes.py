"""What is served while runs break off: configurations, requests, and a caller that comes back.

Requests are wanted from a step on, and known by the log: a caller that comes back after a crash
adds those that the engine never accepted, and no others.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import EngineConfig, from_mapping
from rlt_fsm.events import OutputSampled, Submitted
from rlt_fsm.replay import recorded
from rlt_fsm.workload import Completion
from runner.sim import SimRunner

MOST_STEPS = 3000
Outputs = dict[str, list[tuple[int, int]]]  # by request id: (token, exit depth) of each


class Wanted(NamedTuple):
    """A request, from step `at` on."""

    at: int
    name: str
    prompt: list[int]
    params: SamplingParams


_FEW = {"max_num_seqs": 3, "max_num_batched_tokens": 12, "prefill_chunk_size": 4}
_URGENT = {**_FEW, "max_num_seqs": 2, "policy": "priority", "enable_preemption": True}
_ROOMY = {"num_blocks": 80, "block_size": 2}
_TIGHT = {"num_blocks": 52, "block_size": 2, "incremental_allocation": True}
_PAGES = {"enable_prefix_caching": True}
_LATE = {"async_scheduling": True, "max_in_flight": 3}

SCENES: dict[str, dict[str, dict[str, object]]] = {
    "plain": {"scheduler": _FEW, "cache": _ROOMY},
    "preempting": {"scheduler": _URGENT, "cache": _TIGHT},
    "rewinding": {"scheduler": _URGENT, "cache": {**_TIGHT, "host_snapshot_blocks": 0}},
    "prefix pages": {"scheduler": _FEW, "cache": {**_ROOMY, **_PAGES}},
    "split prompts": {
        "scheduler": {**_FEW, "mode": "mixed"},
        "cache": _ROOMY,
        "execution": {"atomic_prefill": False},
    },
    "late results": {"scheduler": _FEW, "cache": _ROOMY, "execution": _LATE},
    "late results, preempting": {
        "scheduler": _URGENT,
        "cache": {**_TIGHT, **_PAGES},
        "execution": _LATE,
    },
}


def config_of(scene: str, *, durability: str = "group") -> EngineConfig:
    """The engine config of a scene."""
    sections = SCENES[scene]
    execution = {**sections.get("execution", {}), "durability": durability}
    return from_mapping({**sections, "execution": execution})


def sim() -> SimRunner:
    """A fresh sim, the same for every life of a run: late results, and an EOS for `a`."""
    completion = Completion(order="random", seed=4, max_delay=3)
    return SimRunner(completion=completion, script={("a", 1): {2: 0}})


def wanted(seed: int = 0) -> list[Wanted]:
    """Four requests with a common beginning; the later are the more urgent."""
    common = [1 + seed % 5, 2, 3, 4, 5]
    early = {"exit_threshold": 0.5, "min_loops": 1, "seed": seed}
    return [
        Wanted(0, "a", common, SamplingParams(max_tokens=6, priority=3, **early)),
        Wanted(0, "b", [*common, 6, 7], SamplingParams(max_tokens=5, priority=2, seed=seed)),
        Wanted(6, "c", common, SamplingParams(max_tokens=4, priority=0, **early)),
        Wanted(6, "d", [*common, 9], SamplingParams(max_tokens=4, priority=1, seed=seed)),
    ]


def serve(engine: Engine, requests: Sequence[Wanted], most_steps: int = MOST_STEPS) -> None:
    """Add what is wanted and not known yet, and step to the end; the engine stays open."""
    to_come = [request for request in requests if request.name not in engine.state.generations]
    for _ in range(most_steps):
        while to_come and (
            to_come[0].at <= engine.current_step or not engine.has_unfinished_requests()
        ):
            _, name, prompt, params = to_come.pop(0)
            engine.add_request(name, prompt, params)
        if not engine.has_unfinished_requests():
            return
        engine.step()
    raise AssertionError(f"not done after {most_steps} steps")


def outputs_in(log: EventLog, run: int = 1) -> Outputs:
    """What every accepted request of a run got, as the log tells it; idx must be in turn."""
    names: dict[int, str] = {}
    outputs: Outputs = {}
    for fact, *_ in recorded(log.reader(), run):
        if isinstance(fact, Submitted):
            names[fact.ref] = fact.spec.request_id
            outputs[fact.spec.request_id] = []
        elif isinstance(fact, OutputSampled):
            own = outputs[names[fact.ref]]
            assert fact.idx == len(own), f"output {fact.idx} of {names[fact.ref]} comes twice"
            own.append((fact.token_id, fact.exit_depth))
    return outputs


def whole_run(scene: str, log: EventLog | None = None, **options: str) -> EventLog:
    """The log of a run of a scene that nothing interrupts."""
    log = EventLog.memory() if log is None else log
    with Engine(sim(), config_of(scene, **options), log) as engine:
        serve(engine, wanted())
    return log
