"""The premises of the proof that a run drains (docs/explanation/scheduling.md), on real runs."""

import random
from collections import Counter

import pytest

from rlt_fsm import CacheConfig, Engine, EngineConfig, ExecutionConfig, SamplingParams
from rlt_fsm.config import SchedulerConfig
from rlt_fsm.moves import MOVES
from rlt_fsm.policies import ADMIT, POLICIES, View
from rlt_fsm.state import EngineState
from rlt_fsm.states import WorkKey
from runner.sim import SimRunner

ROW_TICKET, ROW_REF, ROW_MOVE, ROW_EXTRA = 2, 4, 5, 14
PREEMPTIONS = {"yield", "offload", "offload_resident", "rewind"}
ENTERS = {"admit", "resume", "select"}
KEYS = [key for key in WorkKey if key is not WorkKey.SPECULATIVE]


class OneKey(View):
    """A view in which one request is ready, and nothing has happened yet."""

    def __init__(self, key: WorkKey) -> None:
        self.key = key

    def ready(self, key: WorkKey) -> int:
        return int(key is self.key)

    decode_due = prompt_recurrent_due = False
    last_works = ()
    min_coda_batch_size = 5


@pytest.mark.parametrize("mode", POLICIES)
@pytest.mark.parametrize("key", KEYS)
def test_a_ready_key_is_offered_after_admission_in_every_mode(mode, key):
    turns = list(POLICIES[mode]().rank(OneKey(key)))
    after_admission = turns[turns.index(ADMIT) + 1 :]
    assert any(key in turn.works for turn in after_admission)


def config(dice: random.Random, mode: str, policy: str, host: int | None) -> EngineConfig:
    is_split = mode == "mixed" or dice.random() < 0.5
    return EngineConfig(
        scheduler=SchedulerConfig(
            mode=mode,
            policy=policy,
            enable_preemption=True,
            max_num_seqs=4,
            max_num_batched_tokens=6,
            prefill_chunk_size=4,
            max_admission_bypasses=4,
        ),
        cache=CacheConfig(
            num_blocks=dice.choice((40, 80)),
            block_size=2,
            incremental_allocation=dice.random() < 0.8,
            enable_prefix_caching=dice.random() < 0.3,
            host_snapshot_blocks=host,
        ),
        execution=ExecutionConfig(atomic_prefill=not is_split),
    )


def waiting_residents(state: EngineState) -> int:
    """How many wait with KV on the device, all of them worse than every active request."""
    resident = [r.order_key for r in state.waiting if r.kv == "RESIDENT"]
    active = [r.order_key for r in state.by_ref.values() if r.status == "ACTIVE"]
    assert not resident or not active or min(resident) > max(active)
    return len(resident)


def preempted_for_better_that_went_on(engine: Engine, keys: dict[str, tuple[int, int]]) -> int:
    """Check the preemptions of the last step; return how many there were."""
    rows = list(engine.last_events)
    names = {r.ref: r.name for r in engine.state.by_ref.values()}
    count = 0
    for place, row in enumerate(rows):
        if MOVES[row[ROW_MOVE]].trigger not in PREEMPTIONS:
            continue
        count += 1
        requester = row[ROW_EXTRA].partition('"for":"')[2].partition('"')[0]
        victim = names[row[ROW_REF]]
        assert keys[victim] > keys[requester], "a victim is strictly worse"
        later = rows[place:]
        went_on = {
            MOVES[r[ROW_MOVE]].trigger.partition(":")[0]
            for r in later
            if r[ROW_REF] is not None and names.get(r[ROW_REF]) == requester
        }
        has_ended = requester not in names.values()  # selected, and finished in this step
        assert went_on & ENTERS or has_ended, "who preempts enters or is selected"
    return count


@pytest.mark.parametrize("host", [None, 0, 16])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("mode", POLICIES)
def test_the_premises_hold_on_random_workloads_until_they_drain(mode, policy, host):
    seen = Counter()
    for seed in range(12):
        dice = random.Random(f"{mode} {policy} {host} {seed}")
        arrivals = sorted(dice.randrange(40) for _ in range(10))
        with Engine(SimRunner(depths=4, max_model_len=32), config(dice, mode, policy, host)) as e:
            keys: dict[str, tuple[int, int]] = {}
            while arrivals or e.has_unfinished_requests():
                while arrivals and (
                    arrivals[0] <= e.current_step or not e.has_unfinished_requests()
                ):
                    arrivals.pop(0)
                    e.add_request(
                        f"r{len(keys)}",
                        [dice.randrange(1, 4) for _ in range(dice.randint(1, 11))],
                        SamplingParams(max_tokens=dice.randint(1, 6), priority=dice.randrange(3)),
                    )
                    newest = max(e.state.by_ref)
                    keys[e.state.by_ref[newest].name] = e.state.by_ref[newest].order_key
                e.step()
                assert e.last_schedule is not None
                assert e.last_schedule.batch is not None, "a step with a live request has a batch"
                seen["residents"] += waiting_residents(e.state)
                seen["preemptions"] += preempted_for_better_that_went_on(e, keys)
                assert e.current_step < 2_000, "it drains"
            assert e.state.pool.obtainable == e.config.cache.num_blocks
    assert seen["preemptions"] > 0, "preemptions were seen"
    assert bool(seen["residents"]) == (policy == "priority"), "yields were seen"
