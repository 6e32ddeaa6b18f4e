"""Asynchronous execution: tickets in flight, results that come late, exits one loop late."""

import pytest
from late_runner import Run, config, forced

from rlt_fsm import SamplingParams, WorkKey


def test_the_next_batch_is_planned_before_the_last_ones_result_is_in():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step()
    run.step()
    assert list(run.runner.in_flight) == [0, 1]
    assert [run.runner.batches[t].works for t in (0, 1)] == [
        (WorkKey.PROMPT_ATOMIC,),
        (WorkKey.DECODE_CODA,),
    ]
    assert run.engine.state.by_id["a"].tickets_in_flight == 2
    run.finish()


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_no_more_batches_are_in_flight_than_may_be(limit):
    run = Run(config(max_in_flight=limit))
    for name in "abc":
        run.engine.add_request(name, [1, 2, 3], forced())
    most = 0
    while run.engine.has_unfinished_requests():
        submit = run.runner.submit

        def counted(batch, submit=submit):
            nonlocal most
            submit(batch)
            most = max(most, len(run.runner.in_flight))

        run.runner.submit = counted
        run.step()
    assert most == limit
    run.finish()


def test_completion_order_is_recorded_and_results_are_applied_in_the_order_of_submission():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step()
    run.step()
    assert run.step(1) == []  # the coda's result is there; the prompt's batch before it is not
    (output,) = run.step(0)
    assert (output.request_id, len(output.token_ids)) == ("a", 1)
    settled = [e for e in run.events("complete_batch", "retire_batch", "output") if e[2] in (0, 1)]
    assert settled == [
        ("complete_batch", None, 1),
        ("complete_batch", None, 0),
        ("retire_batch", None, 0),
        ("output", "a", 1),
        ("retire_batch", None, 1),
    ]
    run.finish()


def test_a_result_is_not_held_back_by_tickets_of_others():
    run = Run(config(max_in_flight=8, scheduler={"max_num_batched_tokens": 4}))
    run.engine.add_request("a", [1] * 4, forced())
    run.engine.add_request("b", [2] * 4, forced())
    first = {}
    while len(first) < 2:
        run.step()
        for ticket, batch in run.runner.batches.items():
            first.setdefault(batch.rows[0].spec.request_id, ticket)
    assert first["a"] in run.runner.in_flight
    run.step(first["b"])
    assert ("retire_batch", None, first["b"]) in run.events("retire_batch")
    assert ("retire_batch", None, first["a"]) not in run.events("retire_batch")
    run.finish()


def test_a_prelude_feeds_the_token_that_the_device_alone_knows_yet():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    ticket = run.step_until(WorkKey.DECODE_PRELUDE)
    (row,) = run.runner.batches[ticket].rows
    assert row.last_token == -1
    assert (row.output_idx, row.token_start) == (1, 3)
    request = run.engine.state.by_id["a"]
    assert (request.undelivered, request.scheduled_outputs, request.outputs) == (1, 1, [])
    run.finish()


def test_nothing_is_sampled_before_the_output_before_is_delivered():
    run = Run(config(max_in_flight=8))
    run.engine.add_request("a", [1, 2, 3], forced())
    first = run.step_until(WorkKey.DECODE_CODA)
    for _ in range(20):  # everything else comes back, the first output does not
        run.step(*[ticket for ticket in run.runner.in_flight if ticket != first])
        codas = [t for t, b in run.runner.batches.items() if WorkKey.DECODE_CODA in b.works]
        if first not in run.runner.in_flight:  # nothing was left to do but to wait for it
            break
        assert codas == [first]
    assert first not in run.runner.in_flight
    run.finish()


# ---- exits, one loop late ----------------------------------------------------------------------


def depths_of(settings, **params):
    run = Run(settings)
    run.engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=3, **params))
    run.finish()
    return run.outputs[-1].exit_depths


def test_a_gate_is_obeyed_one_loop_late():
    assert depths_of(config(), exit_threshold=0.0, min_loops=1) == [4, 2, 2]
    assert depths_of(config(), exit_threshold=0.0, min_loops=2) == [4, 3, 3]


def test_no_loop_beyond_max_loops_is_run_although_its_gate_is_read_late():
    assert depths_of(config(), exit_threshold=0.0, min_loops=2, max_loops=2) == [4, 2, 2]
    assert depths_of(config(), exit_threshold=1.0) == [4, 4, 4]


def test_forced_depths_need_no_gate():
    trace = config(mode="trace")
    assert depths_of(trace, exit_depths=(4, 1, 3), min_loops=1) == [4, 1, 3]


def test_the_next_loop_is_submitted_before_the_gate_of_this_one_is_read():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=2, exit_threshold=0.0))
    loops = []
    while run.engine.has_unfinished_requests():
        run.step()
        newest = max(run.runner.batches)
        if run.runner.batches[newest].works == (WorkKey.DECODE_RECURRENT,) and newest not in loops:
            loops.append(newest)
    events = run.events("submit_batch", "complete_batch")
    first, second = loops[:2]
    assert events.index(("submit_batch", None, second)) < events.index(
        ("complete_batch", None, first)
    )
    run.finish()
