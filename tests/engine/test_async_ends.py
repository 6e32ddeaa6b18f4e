"""Asynchronously: ends that come late, failures in flight, and who may be preempted."""

import pytest
from late_runner import Run, config, forced

import audit
from rlt_fsm import RequestRefused, SamplingParams, WorkKey

# ---- the end of a request ----------------------------------------------------------------------


def stopping_run(**settings):
    """`a` stops with its first output, and its next token's work is in flight by then."""
    run = Run(config(max_in_flight=8, **settings), script={("a", 1): {0: 0}})
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step_until(WorkKey.DECODE_PRELUDE)
    prelude = max(run.runner.in_flight)
    (output,) = run.step(0, 1)
    assert (output.finish_reason, output.token_ids) == ("stop", [0])
    return run, prelude


def test_work_beyond_a_late_eos_is_dropped_and_recorded():
    run, prelude = stopping_run()
    run.finish()
    assert ("drop", "a", prelude) in run.events("drop")
    assert len([e for e in run.events("output") if e[1] == "a"]) == 1
    assert [output.token_ids for output in run.outputs] == [[0]]


def test_an_ended_request_keeps_slot_blocks_and_id_until_its_last_ticket_is_retired():
    run, prelude = stopping_run(scheduler={"max_num_seqs": 1})
    request = run.engine.state.by_id["a"]
    assert (request.status, request.slot, request.kv) == ("FINISHED", "HELD", "RESIDENT")
    assert run.runner.released == []
    with pytest.raises(RequestRefused, match="retiring"):
        run.engine.add_request("a", [5], forced(1))
    run.engine.add_request("b", [5], forced(1))
    assert run.engine.has_unfinished_requests()
    while run.runner.in_flight:  # b finds no slot; there is nothing to do but to wait
        assert run.runner.released == []
        run.step()
    assert run.runner.released == ["a"]
    run.step()
    ends = [e[:2] for e in run.events("retire", "admit")]
    assert ends == [("admit", "a"), ("retire", "a"), ("admit", "b")]
    assert prelude not in run.runner.in_flight
    run.finish()


def test_an_abort_comes_before_results_that_are_there_already():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    coda = run.step_until(WorkKey.DECODE_CODA)
    assert run.engine.abort_request("a")
    assert run.engine.abort_request("a") is False
    outputs = run.step(0, coda)
    assert [(o.finish_reason, o.token_ids) for o in outputs] == [("abort", [])]
    assert ("drop", "a", coda) in run.events("drop")
    run.finish()


def test_a_reused_id_gets_nothing_of_its_earlier_generation():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced(2))
    run.step_until(WorkKey.DECODE_CODA)
    run.engine.abort_request("a")
    run.drain()
    run.engine.add_request("a", [9, 9], forced(2))
    run.finish()
    alone = Run()
    alone.engine.add_request("other", [9, 9], forced(2))
    alone.finish()
    assert run.outputs[-1].token_ids == alone.outputs[-1].token_ids


def test_closing_aborts_who_is_live_and_waits_for_what_is_in_flight():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step()
    run.step()
    run.engine.close()
    assert run.runner.in_flight == {}
    report = audit.verify(run.log)
    assert report.ok
    assert [e[0] for e in run.events("drop", "retire", "close")] == [
        "drop",
        "drop",
        "retire",
        "close",
    ]


# ---- failures ----------------------------------------------------------------------------------


def test_a_batch_that_fails_in_flight_ends_its_requests_alone():
    run = Run(config(scheduler={"max_num_batched_tokens": 4}))
    run.engine.add_request("a", [1] * 4, forced())
    run.engine.add_request("b", [2] * 4, forced())
    run.step()
    (lost,) = run.runner.in_flight
    assert [row.spec.request_id for row in run.runner.batches[lost].rows] == ["a"]
    run.step()
    run.runner.fail(lost)
    run.finish()
    ends = {o.request_id: o.finish_reason for o in run.outputs if o.finished}
    assert ends == {"a": "error", "b": "length"}
    assert ("fail_batch", None, lost) in run.events("fail_batch")


def test_a_batch_that_the_device_does_not_take_fails_alone():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step()
    submit = run.runner.submit

    def refuse(batch):
        run.runner.submit = submit
        raise RuntimeError(f"no room for ticket {batch.ticket}")

    run.runner.submit = refuse
    run.step()
    run.finish()
    assert run.outputs[-1].finish_reason == "error"
    assert [e[2] for e in run.events("fail_batch")] == [1]
    assert [e[2] for e in run.events("complete_batch")] == [0]


def test_a_device_that_is_lost_fails_every_batch_that_it_had_and_the_engine_goes_on():
    run = Run()
    run.engine.add_request("a", [1, 2, 3], forced())
    run.step()
    poll = run.runner.poll

    def lost():
        run.runner.poll = poll
        run.runner.in_flight.clear()
        raise RuntimeError("the device is gone")

    run.runner.poll = lost
    run.step()
    run.engine.add_request("b", [1, 2, 3], forced())
    run.finish()
    ends = {o.request_id: o.finish_reason for o in run.outputs if o.finished}
    assert ends == {"a": "error", "b": "length"}


# ---- preemption --------------------------------------------------------------------------------


def test_a_slot_is_taken_only_from_a_request_that_is_out_of_flight():
    scheduler = {"max_num_seqs": 1, "policy": "priority", "enable_preemption": True}
    run = Run(config(scheduler=scheduler))
    run.engine.add_request("low", [1, 2, 3], forced(8, priority=1))
    run.step_until(WorkKey.DECODE_RECURRENT)
    run.engine.add_request("high", [4, 5], forced(2))
    run.finish()
    told = [e[:2] for e in run.events("yield", "admit", "finish")]
    assert told == [
        ("admit", "low"),
        ("yield", "low"),
        ("admit", "high"),
        ("finish", "high"),
        ("finish", "low"),
    ]
    assert run.events("verdict")[0][1] == "high"
    assert [o.finish_reason for o in run.outputs if o.finished] == ["length", "length"]


def test_blocks_are_taken_only_from_requests_that_are_out_of_flight():
    scheduler = {"max_num_seqs": 3, "enable_preemption": True, "max_num_batched_tokens": 64}
    cache = {"num_blocks": 28, "block_size": 4, "incremental_allocation": True}
    run = Run(config(scheduler=scheduler, cache=cache))
    for name in "xyz":
        run.engine.add_request(name, [1] * 8, SamplingParams(max_tokens=12))
    run.finish()
    assert run.events("offload")
    assert {o.finish_reason for o in run.outputs if o.finished} == {"length"}
