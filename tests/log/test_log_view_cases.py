"""The public views where a run is out of the ordinary."""

import pytest
from log_rows import Script, step_row, view, write_run

from rlt_fsm.log.port import RequestRow

SUBMIT = "submit|NULL>WAITING|||"
ASKED = '{"prompt_token_ids":[5,6,7],"params":{"max_tokens":4,"priority":-1,"top_p":1.0}}'
YIELD = "yield|ACTIVE>WAITING|QUEUED:DECODE_CODA>PARKED:DECODE_CODA|HELD>FREE|"
OFFLOAD = YIELD.replace("yield", "offload") + "RESIDENT>OFFLOADED"
ABORT_WHILE_READ = "abort|ACTIVE>TRANSFERRING|TAKEN:DECODE_CODA>IDLE||"
TRANSFERRED = "transfer_done|TRANSFERRING>FINISHED||HELD>FREE|"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], (None, None, 0)),
        ([YIELD], (None, None, 1)),
        ([OFFLOAD, "rewind||PARKED:DECODE_CODA>IDLE||OFFLOADED>NONE"], (None, None, 2)),
        (["offload_resident||||RESIDENT>OFFLOADED"], (None, None, 0)),
        (["abort|ACTIVE>FINISHED|TAKEN:DECODE_CODA>IDLE||"], (9, "abort", 0)),
        ([ABORT_WHILE_READ], (None, None, 0)),
        ([ABORT_WHILE_READ, TRANSFERRED], (9, "abort", 0)),
        ([TRANSFERRED], (9, "transferred", 0)),
    ],
)
def test_request_counts_preemptions_and_names_every_end(log_path, texts, expected):
    script = Script()
    script.add("submit_remote|NULL>RECEIVING|||NONE>RESIDENT", step=0, ref=0, extra=ASKED)
    for text in texts:
        script.add(text, step=9, ref=0)
    write_run(log_path, script.events, [RequestRow(0, "a", 1)])
    columns = "finished_step, finish_reason, preemptions"
    assert view(log_path, "request", columns) == [expected]


def test_views_keep_runs_apart(log_path):
    script = Script()
    script.add(SUBMIT, step=0, ref=0, extra=ASKED)
    for request_id in ("a", "z"):
        write_run(log_path, script.events, [RequestRow(0, request_id, 1)], [step_row(0, 1, 1)])
    everything = "run_id IN (1, 2)"
    assert view(log_path, "event", "run_id, seq, request_id", everything) == [
        (1, 1, "a"),
        (2, 1, "z"),
    ]
    assert view(log_path, "request", "run_id, request_id, submitted_seq", everything) == [
        (1, "a", 1),
        (2, "z", 1),
    ]
    assert view(log_path, "transition", "request_id", "run_id = 2") == [("z",)]
    assert view(log_path, "run", "run_id, outcome, last_seq", everything) == [
        (1, "running", 1),
        (2, "running", 1),
    ]


def test_an_event_with_an_unknown_move_is_shown_not_hidden(log_path):
    script = Script()
    script.add("grow", step=0, ref=0)
    write_run(log_path, [script.events[0]._replace(move=99_999)], [RequestRow(0, "a", 1)])
    assert view(log_path, "event", "seq, request_id, trigger") == [(1, "a", None)]
