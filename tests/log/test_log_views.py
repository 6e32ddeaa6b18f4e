"""The public views: their columns, and hand-made rows told in the words of the contract."""

import json
import sqlite3

import pytest
from log_rows import HEADER, Script, query, step_row, view, write_run

from rlt_fsm.log.port import RequestRow

CONTRACT = {
    "run": "run_id, started_at, ended_at, outcome, schema_version, engine_version, revision,"
    " config, model, workload, last_seq, digest",
    "request": "run_id, request_id, generation, prompt_token_ids, prompt_len, max_tokens, priority,"
    " params, submitted_seq, submitted_step, first_output_step, finished_step, finish_reason,"
    " outputs, preemptions",
    "event": "run_id, seq, step, ticket, t_ns, request_id, generation, trigger, status_from,"
    " status_to, work_from, work_to, slot_from, slot_to, kv_from, kv_to, blocks, cause, reason,"
    " data",
    "transition": "run_id, seq, step, ticket, t_ns, request_id, generation, machine, trigger,"
    " source, dest",
    "batch": "run_id, ticket, step, operation, works, rows, tokens, reason, submitted_seq,"
    " completed_seq, retired_seq, t_submitted_ns, t_completed_ns",
    "batch_row": "run_id, ticket, row, request_id, generation, work, token_start, token_count,"
    " depth, replay",
    "output": "run_id, request_id, generation, idx, token_id, exit_depth, logprob, step, seq",
    "refusal": "run_id, seq, step, request_id, generation, prompt_token_ids, params, reason",
    "block_change": "run_id, seq, request_id, generation, change, blocks",
    "step": "run_id, step, first_seq, last_seq, ticket, waiting, slots_held, blocks_free,"
    " blocks_prefix_only, host_blocks, digest",
}

SUBMIT = "submit|NULL>WAITING|||"
ADMIT = "admit|WAITING>ACTIVE|IDLE>QUEUED:PROMPT_ATOMIC|FREE>HELD|NONE>RESIDENT"
SELECT_PROMPT = "select||QUEUED:PROMPT_ATOMIC>TAKEN:PROMPT_ATOMIC||"
SELECT_LOOP = "select||QUEUED:DECODE_RECURRENT>TAKEN:DECODE_RECURRENT||"
TO_CODA = "enqueue||TAKEN:PROMPT_ATOMIC>QUEUED:DECODE_CODA||"
TO_PROMPT = "enqueue||TAKEN:PROMPT_ATOMIC>QUEUED:PROMPT_ATOMIC||"
FINISH = "finish|ACTIVE>FINISHED|TAKEN:DECODE_CODA>IDLE||"
ABORT = "abort|WAITING>FINISHED|IDLE>IDLE||"
RETIRE = "retire|FINISHED>NULL||HELD>FREE|RESIDENT>NONE"
RETIRE_WAITING = "retire|FINISHED>NULL|||"
PROMPT_BATCH = '{"operation":"RECURRENT","works":["PROMPT_ATOMIC"],"rows":1,"tokens":3}'
TWO_WORKS = '{"operation":"RECURRENT","works":["PROMPT_B","PROMPT_A"],"rows":1,"tokens":1}'
ASKED = '{"prompt_token_ids":[5,6,7],"params":{"max_tokens":4,"priority":-1,"top_p":1.0}}'


@pytest.fixture
def story(log_path):
    """One request served, one refused, one aborted while it waited, and a batch that failed."""
    script = Script()
    script.add("open", step=0, extra='{"config":{"scheduler":{}},"model":{"depths":4}}')
    script.add(SUBMIT, step=0, ref=0, blocks=0, extra=ASKED)
    script.add("refuse", step=0, ref=1, blocks=0, reason="context need=900 max=512", extra=ASKED)
    script.add(SUBMIT, step=1, ref=2, blocks=0, extra=ASKED)
    script.add(ADMIT, step=1, ref=0, blocks=2, cause=2,
               extra='{"need":2,"cached_tokens":0,"state_row":0,"take":[7,8]}')  # fmt: skip
    script.add("verdict", step=1, ref=2, blocks=0, reason="no-slot")
    script.add(
        SELECT_PROMPT, step=1, ticket=0, ref=0, blocks=2, cause=5, columns=(0, 0, 3, None, 0)
    )
    script.add("submit_batch", step=1, ticket=0, reason="only-ready", extra=PROMPT_BATCH)
    script.add("complete_batch", step=1, ticket=0, cause=8)
    script.add(TO_CODA, step=1, ticket=0, ref=0, blocks=2, cause=9, columns=(4,))
    script.add("retire_batch", step=1, ticket=0, cause=9)
    script.add(ABORT, step=2, ref=2, blocks=0)
    script.add(RETIRE_WAITING, step=2, ref=2, blocks=0, cause=12, extra='{"drop":[]}')
    script.add("submit_batch", step=2, ticket=1, reason="mixed", extra=TWO_WORKS)
    script.add("fail_batch", step=2, ticket=1, cause=14, reason="device lost=1")
    script.add("retire_batch", step=2, ticket=1, cause=15)
    script.add("output", step=3, ticket=2, ref=0, blocks=2, cause=9, columns=(0, 65, 4, -0.5))
    script.add("output", step=4, ticket=3, ref=0, blocks=2, cause=9, columns=(1, 66, 2, None))
    script.add(FINISH, step=4, ticket=3, ref=0, blocks=2, cause=18,
               extra='{"finish_reason":"stop"}')  # fmt: skip
    script.add(RETIRE, step=4, ref=0, blocks=0, cause=19, extra='{"drop":[7,8]}')
    script.add("close", step=5, extra='{"outcome":"drained"}')
    requests = [RequestRow(0, "a", 1), RequestRow(1, "b", 1), RequestRow(2, "b", 2)]
    steps = [step_row(0, 1, 3), step_row(1, 4, 11, b"\xab" * 32)._replace(ticket=0)]
    write_run(log_path, script.events, requests, steps, end="drained")
    return log_path


def test_the_views_are_those_of_the_contract_with_its_columns_in_its_order(story):
    connection = sqlite3.connect(story)
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    columns = {}
    for (name,) in names:
        described = connection.execute(f"SELECT * FROM {name}").description
        columns[name] = ", ".join(column[0] for column in described)
    connection.close()
    assert columns == CONTRACT


def test_run(story):
    assert view(story, "run") == [
        (1, "2031-05-04T03:02:01Z", "2031-05-04T03:03:00Z", "drained", 1, "0.1.0", "abc123",
         HEADER.config, HEADER.model, None, 21, "ab" * 32)
    ]  # fmt: skip


def test_request_tells_the_life_of_every_request_that_was_not_refused(story):
    params = '{"max_tokens":4,"priority":-1,"top_p":1.0}'
    assert view(story, "request") == [
        (1, "a", 1, "[5,6,7]", 3, 4, -1, params, 2, 0, 3, 4, "stop", 2, 0),
        (1, "b", 2, "[5,6,7]", 3, 4, -1, params, 4, 1, None, 2, "abort", 0, 0),
    ]


def test_event_has_one_row_for_each_event_with_text_enums(story):
    rows = view(story, "event")
    assert [row[1] for row in rows] == list(range(1, 22))
    assert rows[1] == (1, 2, 0, None, 2000, "a", 1, "submit", None, "WAITING", None, None, None,
                       None, None, None, 0, None, None, ASKED)  # fmt: skip
    assert rows[6][:12] == (1, 7, 1, 0, 7000, "a", 1, "select", None, None, "QUEUED:PROMPT_ATOMIC",
                            "TAKEN:PROMPT_ATOMIC")  # fmt: skip
    assert rows[6][12:19] == (None, None, None, None, 2, 5, None)
    assert rows[7][3:8] == (0, 8000, None, None, "submit_batch")
    assert rows[7][16:19] == (None, None, "only-ready")
    assert rows[19][7:17] == ("retire", "FINISHED", None, None, None, "HELD", "FREE", "RESIDENT",
                              "NONE", 0)  # fmt: skip


def test_event_data_is_json_made_of_columns_where_the_event_has_no_other(story):
    data = dict(view(story, "event", "seq, data"))
    assert json.loads(data[1]) == {"config": {"scheduler": {}}, "model": {"depths": 4}}
    assert data[6] is None
    assert data[7] == '{"row":0,"token_start":0,"token_count":3,"depth":null,"replay":0}'
    assert data[10] == '{"exit_depth":4}'
    assert data[11] is None
    assert data[17] == '{"idx":0,"token_id":65,"exit_depth":4,"logprob":-0.5}'
    assert data[18] == '{"idx":1,"token_id":66,"exit_depth":2,"logprob":null}'
    assert data[19] == '{"finish_reason":"stop"}'


def test_enqueue_without_an_exit_has_no_data(log_path):
    script = Script()
    script.add(TO_PROMPT, step=0, ref=0)
    write_run(log_path, script.events)
    assert view(log_path, "event", "data") == [(None,)]


def test_transition_has_one_row_for_each_machine_that_an_event_moves(story):
    rows = view(story, "transition", "seq, request_id, generation, machine, trigger, source, dest")
    assert rows == [
        (2, "a", 1, "status", "submit", None, "WAITING"),
        (4, "b", 2, "status", "submit", None, "WAITING"),
        (5, "a", 1, "status", "admit", "WAITING", "ACTIVE"),
        (5, "a", 1, "work", "admit", "IDLE", "QUEUED:PROMPT_ATOMIC"),
        (5, "a", 1, "slot", "admit", "FREE", "HELD"),
        (5, "a", 1, "kv", "admit", "NONE", "RESIDENT"),
        (7, "a", 1, "work", "select", "QUEUED:PROMPT_ATOMIC", "TAKEN:PROMPT_ATOMIC"),
        (10, "a", 1, "work", "enqueue", "TAKEN:PROMPT_ATOMIC", "QUEUED:DECODE_CODA"),
        (12, "b", 2, "status", "abort", "WAITING", "FINISHED"),
        (12, "b", 2, "work", "abort", "IDLE", "IDLE"),
        (13, "b", 2, "status", "retire", "FINISHED", None),
        (19, "a", 1, "status", "finish", "ACTIVE", "FINISHED"),
        (19, "a", 1, "work", "finish", "TAKEN:DECODE_CODA", "IDLE"),
        (20, "a", 1, "status", "retire", "FINISHED", None),
        (20, "a", 1, "slot", "retire", "HELD", "FREE"),
        (20, "a", 1, "kv", "retire", "RESIDENT", "NONE"),
    ]
    assert view(story, "transition", "run_id, seq, step, ticket, t_ns", "seq = 7") == [
        (1, 7, 1, 0, 7000)
    ]


def test_transition_is_the_projection_of_event(story):
    projected = [
        (seq, machine, trigger, source, dest)
        for seq, trigger, *states in view(
            story,
            "event",
            "seq, trigger, status_from, status_to, work_from, work_to, slot_from, slot_to,"
            " kv_from, kv_to",
        )
        for machine, source, dest in zip(
            ("status", "work", "slot", "kv"), states[::2], states[1::2], strict=True
        )
        if (source, dest) != (None, None)
    ]
    assert view(story, "transition", "seq, machine, trigger, source, dest") == projected


def test_batch_has_its_times_and_a_failed_one_was_never_completed(story):
    assert view(story, "batch") == [
        (1, 0, 1, "RECURRENT", "PROMPT_ATOMIC", 1, 3, "only-ready", 8, 9, 11, 8000, 9000),
        (1, 1, 2, "RECURRENT", "PROMPT_A+PROMPT_B", 1, 1, "mixed", 14, None, 16, 14000, None),
    ]


def test_batch_row_tells_what_was_selected_as_what(log_path):
    script = Script()
    script.add(SELECT_PROMPT, step=1, ticket=0, ref=0, columns=(0, 0, 3, None, 0))
    script.add(SELECT_LOOP, step=1, ticket=0, ref=1, columns=(1, 12, 1, 2, 1))
    write_run(log_path, script.events, [RequestRow(0, "a", 1), RequestRow(1, "b", 4)])
    assert view(log_path, "batch_row") == [
        (1, 0, 0, "a", 1, "PROMPT_ATOMIC", 0, 3, None, 0),
        (1, 0, 1, "b", 4, "DECODE_RECURRENT", 12, 1, 2, 1),
    ]


def test_output(story):
    assert view(story, "output") == [
        (1, "a", 1, 0, 65, 4, -0.5, 3, 17),
        (1, "a", 1, 1, 66, 2, None, 4, 18),
    ]


def test_refusal(story):
    params = '{"max_tokens":4,"priority":-1,"top_p":1.0}'
    assert view(story, "refusal") == [
        (1, 3, 0, "b", 1, "[5,6,7]", params, "context need=900 max=512")
    ]


def test_block_change_has_one_row_for_each_kind_of_change_and_none_for_no_block(log_path):
    script = Script()
    script.add(SUBMIT, step=0, ref=0, extra=ASKED)
    script.add(ADMIT, step=0, ref=0, extra='{"need":3,"share":[1],"take":[2,3]}')
    script.add("grow", step=1, ref=0, extra='{"take":[4]}')
    script.add("publish", step=1, ref=0, extra='{"publish":[2]}')
    script.add("pin", step=1, ref=0, extra='{"pin":[2]}')
    script.add("unpin", step=2, ref=0, extra='{"unpin":[2]}')
    script.add("evict", step=2, ref=0, extra='{"evict":[2]}')
    script.add(RETIRE, step=3, ref=0, extra='{"drop":[1,2,3,4]}')
    script.add(RETIRE_WAITING, step=3, ref=1, extra='{"drop":[]}')
    write_run(log_path, script.events, [RequestRow(0, "a", 1), RequestRow(1, "b", 1)])
    assert view(log_path, "block_change") == [
        (1, 2, "a", 1, "share", "[1]"),
        (1, 2, "a", 1, "take", "[2,3]"),
        (1, 3, "a", 1, "take", "[4]"),
        (1, 4, "a", 1, "publish", "[2]"),
        (1, 5, "a", 1, "pin", "[2]"),
        (1, 6, "a", 1, "unpin", "[2]"),
        (1, 7, "a", 1, "evict", "[2]"),
        (1, 8, "a", 1, "drop", "[1,2,3,4]"),
    ]


def test_step(story):
    assert view(story, "step") == [
        (1, 0, 1, 3, None, 1, 2, 30, 4, 5, "07" * 32),
        (1, 1, 4, 11, 0, 1, 2, 30, 4, 5, "ab" * 32),
    ]


@pytest.mark.parametrize("name", sorted(CONTRACT.keys() - {"run", "step"}))
def test_a_view_reads_one_run_as_one_range_of_the_key(story, name):
    plan = query(story, f"EXPLAIN QUERY PLAN SELECT * FROM {name} WHERE run_id = 1")
    details = [step[3] for step in plan]
    assert "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)" in details
    assert "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in details


def test_the_trigger_of_the_log_has_no_destination_in_it(story):
    triggers = {trigger for (trigger,) in view(story, "event", "trigger")}
    assert {"admit", "enqueue", "abort"} <= triggers
    assert not any(":" in trigger for trigger in triggers)
