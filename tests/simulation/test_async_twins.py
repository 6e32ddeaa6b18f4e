"""Asynchronous or not, in whatever order batches complete: the same tokens, depths and ends."""

import pytest
from judging import judge
from msgspec.structs import replace

from rlt_fsm import Engine, EventLog
from rlt_fsm.config import ExitConfig
from rlt_fsm.drive import drive
from rlt_fsm.workload import Completion
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload

GROUPS = 8
SEEDS_EACH = 50


def twin(workload, completion):
    """The workload without aborts and faults, exits one loop late; synchronous without a
    `completion`.
    """
    config = workload.config
    is_async = completion is not None
    most = 2 + completion.seed % 4 if is_async else 3
    execution = replace(config.execution, async_scheduling=is_async, max_in_flight=most)
    mode = config.exit.mode or "ouro_delayed"
    config = replace(config, execution=execution, exit=ExitConfig(mode=mode))
    return replace(workload, config=config, completion=completion, actions=())


def results(workload, log):
    runner = SimRunner.of(workload)
    with Engine(runner, workload.config, log) as engine:
        result = drive(engine, workload)
        assert not result.cut_off
        return {request.label: request for request in result.requests}


def adversary(seed):
    return Completion(order="random", seed=seed, max_delay=(1, 2, 5, 9)[seed % 4])


@pytest.mark.parametrize("group", range(GROUPS))
def test_an_adversarial_completion_order_changes_no_token_depth_or_end(group):
    reordered = 0
    for seed in range(group * SEEDS_EACH, (group + 1) * SEEDS_EACH):
        workload = random_workload(seed)
        with EventLog.memory() as log:
            late = results(twin(workload, adversary(seed)), log)
            assert judge(log) == [], seed
            reordered += overtakes(log)
        with EventLog.memory() as log:
            on_time = results(twin(workload, None), log)
        for label, request in late.items():
            other = on_time[label]
            if request.refused is not None or other.refused is not None:
                continue  # whether an id is still in use when it comes again depends on the time
            assert request == other, seed
    assert reordered > 0


def overtakes(log):
    """Whether some ticket was completed before one that was submitted before it."""
    reader = log.reader()
    (run,) = reader.runs()
    done = {m.move for m in reader.moves(run.run_id) if m.trigger == "complete_batch"}
    tickets = [event[2] for event in reader.events(run.run_id) if event[5] in done]
    return tickets != sorted(tickets)


def test_the_traces_of_two_requests_are_followed_exactly():
    traces = {"a": (4, 1, 4, 2, 3), "b": (4, 3, 2, 4, 1)}
    base = random_workload(0)
    requests = tuple(
        replace(
            base.requests[0],
            id=name,
            at=0,
            prompt=(1, 2, 3),
            prompt_len=None,
            prompt_like=None,
            shared_len=None,
            eos_at=None,
            stop_at=None,
            params=replace(
                base.requests[0].params,
                exit_depths=trace,
                max_tokens=5,
                min_tokens=0,
                min_loops=1,
                max_loops=None,
                ignore_eos=True,
                stop_token_ids=(),
            ),
        )
        for name, trace in traces.items()
    )
    plain = replace(
        base,
        requests=requests,
        depths=4,
        max_model_len=32,
        config=replace(base.config, cache=replace(base.config.cache, num_blocks=200)),
    )
    for completion in (None, *map(adversary, range(12))):
        with EventLog.memory() as log:
            got = results(twin(plain, completion), log)
        assert {name: result.exit_depths for name, result in got.items()} == traces
