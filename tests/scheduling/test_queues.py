"""What entering, leaving and finding cost does not grow with how many others wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from observed import SPLIT, URGENT, observed

import rlt_fsm

PACKAGE = str(Path(rlt_fsm.__file__).parent)


def lines_run(action):
    """How many lines of the engine an action runs: its operations, counted."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def lines_of_a_decode_step(requests):
    """A batch of all requests, each of which is queued again behind the others."""
    scheduler = {"max_num_seqs": requests, "max_num_batched_tokens": requests}
    cache = {"num_blocks": 4 * requests, "block_size": 16}
    with observed(scheduler=scheduler, cache=cache, is_audited=False) as seen:
        for number in range(requests):
            seen.add(f"r{number}", 1, 2)
        while len(seen.engine.state.queues["DECODE_RECURRENT"]) < requests:
            seen.step()
        lines = lines_run(seen.engine.step)
        for number in range(requests):
            seen.engine.abort_request(f"r{number}")
    return lines


def test_each_row_of_a_step_costs_the_same_however_many_there_are():
    few, more, many = (lines_of_a_decode_step(requests) for requests in (64, 128, 256))
    assert many - more == 2 * (more - few)


def lines_with_waiting(requests):
    """Aborting one in the middle, adding one at its place, and a step that admits nobody."""
    scheduler = {"max_num_seqs": 1, "policy": "priority", "admission_scan_limit": 8}
    with observed(scheduler=scheduler, is_audited=False) as seen:
        seen.add("running", 1, 9)
        for number in range(requests):
            seen.add(f"r{number}", 1, 1, priority=number)
        seen.until("running", "QUEUED:DECODE_RECURRENT")
        seen.step()
        middle = f"r{requests // 2}"
        lines = (
            lines_run(lambda: seen.engine.abort_request(middle)),
            lines_run(lambda: seen.add(middle, 1, 1, priority=requests // 2)),
            lines_run(seen.step),
        )
        for name in ["running", *seen.waiting]:
            seen.engine.abort_request(name)
    return lines


def test_a_waiting_queue_of_twice_the_length_costs_one_more_comparison():
    *short, step = lines_with_waiting(32)
    *long, same_step = lines_with_waiting(512)
    assert [more - less for more, less in zip(long, short, strict=True)] == [4, 4]
    assert same_step == step


def lines_of_a_scan(active, waiting, *, is_preempting):
    """A decode step whose admission finds no blocks for any of the waiting."""
    scheduler = {
        "max_num_seqs": 2 * active,
        "max_num_batched_tokens": active,
        "enable_preemption": is_preempting,
    }
    cache = {"num_blocks": 4 * active, "block_size": 16, "incremental_allocation": True}
    with observed(scheduler=scheduler, cache=cache, is_audited=False) as seen:
        for number in range(active):
            seen.add(f"a{number}", 1, 2)
        seen.step(2)
        for number in range(waiting):
            seen.add(f"w{number}", 1, 2)
        seen.until("a0", "QUEUED:DECODE_RECURRENT")
        seen.step(2)
        lines = lines_run(seen.engine.step)
        assert seen.engine.last_schedule.batch.reason == "decode-ready"
        assert len(seen.waiting) == waiting
        for name in list(seen.engine.state.by_id):
            seen.engine.abort_request(name)
    return lines


@pytest.mark.parametrize("is_preempting", [False, True])
def test_each_request_that_does_not_fit_costs_at_most_a_comparison_more_for_twice_as_many_active(
    is_preempting,
):
    few, many = (
        lines_of_a_scan(active, 48, is_preempting=is_preempting)
        - lines_of_a_scan(active, 16, is_preempting=is_preempting)
        for active in (32, 64)
    )
    assert many - few == (32 if is_preempting else 0)  # to find who is worse


def lines_of_entries(active, entering, *, is_async):
    """A step in which urgent requests enter, each for one of the active ones, the worst first."""
    scheduler = {**URGENT, "max_num_seqs": 2 * active, "max_num_batched_tokens": 2 * active}
    cache = {"num_blocks": 4 * active, "block_size": 16, "incremental_allocation": True}
    execution = {"async_scheduling": is_async, "max_in_flight": 1}
    with observed(scheduler=scheduler, cache=cache, execution=execution, is_audited=False) as seen:
        for number in range(active):
            seen.add(f"a{number}", 1, 2, priority=1)
        seen.until("a0", "QUEUED:DECODE_RECURRENT")
        seen.step()
        for number in range(entering):
            seen.add(f"u{number}", 1, 1, priority=0)
        lines = lines_run(seen.engine.step)
        assert len(seen.waiting) == entering
        assert seen.engine.state.by_id["u0"].status == "ACTIVE"
        for name in list(seen.engine.state.by_id):
            seen.engine.abort_request(name)
    return lines


@pytest.mark.parametrize("is_async", [False, True])
def test_each_entry_that_preempts_costs_four_comparisons_more_for_twice_as_many_active(is_async):
    few, many = (
        lines_of_entries(active, 16, is_async=is_async)
        - lines_of_entries(active, 8, is_async=is_async)
        for active in (32, 64)
    )
    # Its line's and its victim's place among the holders, and twice who is worse.
    assert many - few == 4 * 8


# ---- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", [{}, SPLIT], ids=["atomic", "split"])
@pytest.mark.parametrize("is_parked", [False, True], ids=["running", "parked"])
def test_an_aborted_request_is_in_no_queue_whatever_it_waited_for(is_parked, execution):
    scheduler = {**URGENT, "max_num_seqs": 1, "mode": "no_refill"}
    works = set()
    for steps in range(7):
        with observed(scheduler=scheduler, execution=execution, depths=2, is_audited=False) as seen:
            seen.add("a", 2, 3, priority=1)
            request = seen.request("a")
            for _ in range(steps):
                seen.step()
            if is_parked:
                seen.add("urgent", 1, 1)
                seen.until("urgent", "ACTIVE")
            works.add(request.work)
            assert seen.engine.abort_request("a")
            state = seen.engine.state
            assert not any(request in queue for queue in state.queues.values())
            assert request not in list(state.waiting)
            assert "a" not in state.by_id
    assert {work.partition(":")[0] for work in works} == {
        "IDLE",
        "PARKED" if is_parked else "QUEUED",
    }


PROGRAM = """
import sys
from pathlib import Path
from scenario_runs import run
from rlt_fsm import EventLog
from rlt_fsm.workload import load
with EventLog.memory() as log:
    run(load(Path(sys.argv[1])), log)
    print(log.reader().runs()[0].digest)
"""


def test_a_schedule_does_not_depend_on_the_order_of_sets():
    scenarios = Path(__file__).parents[1] / "scenarios"
    file = scenarios / "data" / "F11-preemption-livelock.json"
    digests = set()
    for seed in ("1", "2"):
        paths = os.pathsep.join([str(scenarios), str(Path(PACKAGE).parent)])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
