"""An endless random load on one engine: bursts and lulls of requests, aborts, preemption, late
results. Everything follows from the seed; every request has an id of its own.
"""

from random import Random

from rlt_fsm import Engine, RequestRefused, SamplingParams
from rlt_fsm.config import EngineConfig, from_mapping
from rlt_fsm.workload import Completion
from runner.sim import SimRunner

CONFIG: EngineConfig = from_mapping(
    {
        "scheduler": {
            "max_num_seqs": 32,
            "max_num_batched_tokens": 128,
            "policy": "priority",
            "enable_preemption": True,
            "max_waiting": 48,
        },
        "cache": {
            "num_blocks": 1200,
            "block_size": 4,
            "incremental_allocation": True,
            "enable_prefix_caching": True,
            "host_snapshot_blocks": 400,
        },
        "execution": {"async_scheduling": True, "max_in_flight": 3},
    }
)
MOODS = (0.0, 0.05, 0.1, 0.2)  # chances of an arrival before a step
MOOD_STEPS = 400
ABORT_CHANCE = 0.004  # before a step


def sim() -> SimRunner:
    """A sim whose results come late and in random order."""
    return SimRunner(max_model_len=512, completion=Completion(order="random", seed=7, max_delay=2))


class Load:
    """Steps an engine, adding and aborting requests on the way."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._random = Random(seed)
        self._mood = 0.1
        self._steps = 0
        self.added = self.refused = self.aborted = 0

    def step(self) -> None:
        """One step, and what comes before it."""
        engine, random = self._engine, self._random
        if self._steps % MOOD_STEPS == 0:
            self._mood = random.choice(MOODS)
        self._steps += 1
        if random.random() < self._mood:
            self._add()
        if engine.state.by_id and random.random() < ABORT_CHANCE:
            self.aborted += engine.abort_request(random.choice(list(engine.state.by_id)))
        if engine.has_unfinished_requests():
            engine.step()
        else:
            engine.advance_to(engine.current_step + 1)

    def _add(self) -> None:
        random = self._random
        # Half of the prompts begin like others, for the prefix cache.
        common = [1 + random.randrange(4)] * (8 * random.randrange(4))
        prompt = [*common, *(random.randrange(1, 512) for _ in range(random.randint(1, 40)))]
        params = SamplingParams(
            max_tokens=random.randint(1, 48),
            priority=random.randrange(4),
            exit_threshold=random.choice((0.5, 0.8, 1.0)),
            min_loops=1,
            seed=random.randrange(1 << 30),
        )
        name = f"request-{self.added + self.refused}"
        try:
            self._engine.add_request(name, prompt, params)
        except RequestRefused:
            self.refused += 1
        else:
            self.added += 1
