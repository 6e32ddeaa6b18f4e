"""Points, steps, generations and triggers of contract §5."""

import pytest

from rlt_fsm import Engine, EngineConfig, EventLog, WorkloadError
from rlt_fsm.drive import drive
from rlt_fsm.workload import parse
from runner.sim import SimRunner

LONG = {"max_tokens": 8, "params": {"ignore_eos": True}}


def results(driven):
    return {request.label: request for request in driven.result.requests}


def test_requests_arrive_before_the_step_they_name(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, **LONG},
            {"id": "c", "at": 5, "prompt_len": 3, **LONG},
            {"id": "b", "at": 2, "prompt_len": 3, **LONG},
        ]
    )
    assert driven.of("submit") == ["0 submit a#1", "2 submit b#1", "5 submit c#1"]
    assert [request.label for request in driven.result.requests] == ["a", "b", "c"]


def test_an_idle_engine_jumps_to_the_next_arrival(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 1},
            {"id": "b", "at": 250_000, "prompt_len": 3, "max_tokens": 1},
        ]
    )
    assert driven.of("submit") == ["0 submit a#1", "250000 submit b#1"]
    assert driven.result.steps == 4
    assert driven.of("close") == ["250002 close"]


def test_actions_come_before_arrivals_so_an_id_is_aborted_and_reused_in_one_step(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, **LONG},
            {"id": "a", "at": 4, "prompt_len": 4, "max_tokens": 2},
        ],
        actions=[{"at": 4, "abort": "a"}],
    )
    assert driven.of("abort", "retire", "submit", "finish") == [
        "0 submit a#1",
        "4 abort a#1",
        "4 retire a#1",
        "4 submit a#2",
        "11 finish a#2",
        "11 retire a#2",
    ]
    ended = results(driven)
    assert ended["a"].finish_reason == "abort"
    assert len(ended["a"].token_ids) == 1
    assert ended["a#2"].finish_reason == "length"
    assert len(ended["a#2"].token_ids) == 2
    assert len(ended["a#2"].prompt_token_ids) == 4


def test_a_duplicate_is_refused_alone_and_takes_a_generation(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 2},
            {"id": "a", "at": 1, "prompt_len": 3},
            {"id": "a", "at": 50, "prompt_len": 3, "max_tokens": 2},
        ]
    )
    ended = results(driven)
    assert ended["a"].finish_reason == "length"
    assert ended["a#2"].refused == "duplicate"
    assert "this id is live" in ended["a#2"].message
    assert ended["a#3"].finish_reason == "length"
    assert driven.of("submit", "refuse") == ["0 submit a#1", "1 refuse a#2", "50 submit a#3"]


def test_an_abort_of_an_unknown_future_or_finished_id_does_nothing(run_workload):
    plain = run_workload()
    aborted = run_workload(
        actions=[{"at": 0, "abort": name} for name in ("nobody", "a", "b#7")]
        + [{"at": 900, "abort": "a"}]
    )
    assert aborted.of("abort") == plain.of("abort") == []
    assert results(aborted) == results(plain)


def test_an_abort_may_name_a_generation(run_workload):
    requests = [
        {"id": "a", "prompt_len": 3, "max_tokens": 1},
        {"id": "a", "at": 10, "prompt_len": 3, **LONG},
    ]
    other = run_workload(requests=requests, actions=[{"at": 12, "abort": "a#1"}])
    same = run_workload(requests=requests, actions=[{"at": 12, "abort": "a#2"}])
    assert results(other)["a#2"].finish_reason == "length"
    assert results(same)["a#2"].finish_reason == "abort"


def when(nth=1, **state):
    return {"abort": "a", "when": {"request": "a", "nth": nth, **state}}


@pytest.mark.parametrize(
    ("action", "step", "outputs"),
    [
        (when(work="TAKEN:PROMPT_ATOMIC"), 1, 0),
        (when(work="TAKEN:DECODE_CODA"), 2, 1),
        (when(work="TAKEN:DECODE_CODA", nth=2), 8, 2),
        (when(work="QUEUED:DECODE_RECURRENT", nth=3), 5, 1),
        (when(status="ACTIVE"), 1, 0),
        (when(status="WAITING"), 1, 0),
        (when(slot="HELD"), 1, 0),
        (when(kv="RESIDENT"), 1, 0),
    ],
)
def test_when_fires_at_the_point_after_the_nth_event(run_workload, action, step, outputs):
    driven = run_workload(requests=[{"id": "a", "prompt_len": 3, **LONG}], actions=[action])
    assert driven.of("abort") == [f"{step} abort a#1"]
    assert len(results(driven)["a"].token_ids) == outputs


@pytest.mark.parametrize("action", [when(nth=2, slot="HELD"), when(kv="OFFLOADED")])
def test_when_does_nothing_where_its_event_does_not_come(run_workload, action):
    driven = run_workload(requests=[{"id": "a", "prompt_len": 3, **LONG}], actions=[action])
    assert results(driven)["a"].finish_reason == "length"


def test_when_counts_the_events_of_one_generation(run_workload):
    second = {"abort": "a", "when": {"request": "a#2", "work": "TAKEN:DECODE_CODA"}}
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 2},
            {"id": "a", "at": 20, "prompt_len": 3, **LONG},
        ],
        actions=[second],
    )
    assert results(driven)["a"].finish_reason == "length"
    assert driven.of("abort") == ["22 abort a#2"]


def test_one_request_may_be_aborted_by_what_another_does(run_workload):
    driven = run_workload(
        requests=[{"id": "a", "prompt_len": 3, **LONG}, {"id": "b", "prompt_len": 3, **LONG}],
        actions=[{"abort": "b", "when": {"request": "a", "work": "TAKEN:DECODE_CODA"}}],
    )
    assert results(driven)["b"].finish_reason == "abort"
    assert results(driven)["a"].finish_reason == "length"


def test_actions_of_one_point_go_in_file_order(run_workload):
    driven = run_workload(
        config={"scheduler": {"max_num_seqs": 4}},
        requests=[{"id": name, "prompt_len": 3, **LONG} for name in "abc"],
        actions=[
            {"at": 2, "abort": "c"},
            {"abort": "a", "when": {"request": "b", "work": "TAKEN:DECODE_CODA"}},
            {"at": 2, "abort": "b"},
        ],
    )
    assert driven.of("abort") == ["2 abort c#1", "2 abort a#1", "2 abort b#1"]


def test_a_run_stops_at_max_steps_and_says_so(run_workload):
    driven = run_workload(requests=[{"id": "a", "prompt_len": 3, **LONG}], expect={"max_steps": 5})
    assert driven.result.cut_off
    assert driven.result.steps == 5
    assert results(driven)["a"].finish_reason is None
    assert driven.of("abort") == ["5 abort a#1"]  # by close


def test_a_run_that_needs_exactly_max_steps_is_not_cut_off(run_workload):
    driven = run_workload(
        requests=[{"id": "a", "prompt_len": 3, "max_tokens": 1}], expect={"max_steps": 2}
    )
    assert not driven.result.cut_off
    assert driven.result.steps == 2


def test_a_fault_fails_the_batch_of_its_step_and_the_run_goes_on(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, **LONG},
            {"id": "b", "at": 9, "prompt_len": 3, "max_tokens": 2},
        ],
        actions=[{"at": 3, "fail": True}],
    )
    assert driven.of("fail_batch") == ["3 fail_batch"]
    assert results(driven)["a"].finish_reason == "error"
    assert results(driven)["b"].finish_reason == "length"


def test_a_fault_while_nothing_runs_hits_nothing(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 1},
            {"id": "b", "at": 9, "prompt_len": 3, "max_tokens": 1},
        ],
        actions=[{"at": 5, "fail": True}],
    )
    assert driven.of("fail_batch") == []


def test_eos_at_and_stop_at_end_where_they_say(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 8, "eos_at": 3},
            {"id": "b", "prompt_len": 3, "max_tokens": 8, "stop_at": 2},
        ]
    )
    ended = results(driven)
    assert (ended["a"].finish_reason, len(ended["a"].token_ids)) == ("stop", 3)
    assert ended["a"].token_ids[-1] == 0
    assert (ended["b"].finish_reason, len(ended["b"].token_ids)) == ("stop", 2)
    assert ended["b"].token_ids[-1] == 511


def test_eos_before_min_tokens_does_not_stop(run_workload):
    driven = run_workload(
        requests=[
            {"id": "a", "prompt_len": 3, "max_tokens": 5, "eos_at": 2, "params": {"min_tokens": 3}}
        ]
    )
    ended = results(driven)["a"]
    assert (ended.finish_reason, len(ended.token_ids)) == ("length", 5)
    assert ended.token_ids[1] == 0


def test_the_log_keeps_the_workload(run_workload, workload_text):
    assert parse(run_workload().stored) == parse(workload_text())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {
                "actions": [{"at": 1, "crash": True}],
                "config": {"execution": {"durability": "off"}},
            },
            "'crash' action needs a log that is written",
        ),
        ({"actions": [{"at": 1, "send_done": "a"}]}, "needs pd"),
        ({"requests": [{"id": "a", "prompt_len": 1, "remote": True}]}, "needs pd"),
    ],
)
def test_what_cannot_be_driven_is_refused_before_anything_runs(run_workload, change, sentence):
    with pytest.raises(WorkloadError, match=sentence):
        run_workload(**change)


def test_faults_without_a_runner_that_can_fail_are_refused(workload_text):
    workload = parse(workload_text(actions=[{"at": 1, "fail": True}]))
    with (
        EventLog.memory() as log,
        Engine(SimRunner(), EngineConfig(), log) as engine,
        pytest.raises(WorkloadError, match="use model sim"),
    ):
        drive(engine, workload)


def test_every_step_is_told_to_who_waits(workload_text):
    workload = parse(workload_text())
    told = []
    with EventLog.memory() as log, Engine(SimRunner(), workload.config, log) as engine:
        result = drive(engine, workload, on_step=lambda steps, ended: told.append((steps, ended)))
    assert [steps for steps, _ in told] == list(range(1, result.steps + 1))
    assert told[-1][1] == 2
