"""Together, the scenarios and the files of `moves/` make every move that an engine can make.

The files of `moves/` are random workloads that make a rare move, shrunk to what the move needs;
their `about` names it. What no run can do is listed here with its reason.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from scenario_runs import can_run, run

import audit
from rlt_fsm import EventLog
from rlt_fsm.machines import NULL, REQUEST_MACHINES, public_trigger
from rlt_fsm.workload import load

HERE = Path(__file__).parent
MOVES = sorted((HERE / "moves").glob("*.json"))
SCENARIOS = sorted((HERE / "data").glob("*.json"))

REMOTE = {"submit_remote", "reserve", "activate", "export", "staged", "transfer_done"}


def why_never(machine, trigger, source, dest):
    """Why no run of this version makes a move of the table; None where one can."""
    states = {source, dest}
    if trigger in REMOTE or states & {"RECEIVING", "TRANSFERRING"}:
        return "needs a remote peer"
    if any(state.endswith(":SPECULATIVE") for state in states):
        return "needs speculative decoding"
    if machine == "work" and trigger == "finish" and source.partition(":")[0] in {"IDLE", "PARKED"}:
        return "only a batch's result ends a request, and then it is active"
    is_taken = source.startswith("TAKEN:") and source != "TAKEN:DECODE_CODA"
    if machine == "work" and trigger == "abort" and is_taken:
        return "between two steps all work goes on but that for a last output, which is to come"
    if trigger == "rewind" and (source.startswith("TAKEN:") or source in {"IDLE", "OFFLOADED"}):
        return "needs recovery: a victim has blocks and its work is not taken"
    if (source, dest) == ("TAKEN:PROMPT_PRELUDE", "QUEUED:PROMPT_PRELUDE"):
        return "every embedded chunk runs its loops before the next is embedded"
    if (source, dest) == ("TAKEN:PROMPT_RECURRENT", "QUEUED:DECODE_PRELUDE"):
        return "replays are atomic"
    return None


DECLARED = {
    (spec["name"], public_trigger(edge["trigger"]), edge["source"], edge["dest"])
    for spec in REQUEST_MACHINES
    for edge in spec["transitions"]
}


def moves_of(db):
    with closing(sqlite3.connect(db)) as connection:
        rows = connection.execute("select distinct machine, trigger, source, dest from transition")
        return {
            (machine, trigger, source or NULL, dest or NULL)
            for machine, trigger, source, dest in rows
        }


@pytest.mark.parametrize("file", MOVES, ids=lambda file: file.stem)
def test_a_file_of_a_rare_move_drains_and_its_log_is_clean(file, tmp_path):
    db = tmp_path / "run.db"
    with EventLog.open(db) as log:
        assert not run(load(file), log).cut_off
    report = audit.verify(db)
    assert report.findings == []
    assert report.verdict == "clean"


def test_every_move_that_an_engine_can_make_is_made(tmp_path):
    made = set()
    for file in (*SCENARIOS, *MOVES):
        workload = load(file)
        if can_run(workload):
            db = tmp_path / f"{file.stem}.db"
            with EventLog.open(db) as log:
                run(workload, log)
            made |= moves_of(db)
    assert made <= DECLARED
    assert {move for move in DECLARED if why_never(*move) is None} == made
