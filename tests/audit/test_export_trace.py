"""`rlt-audit export --format perfetto`: the form is the format's, the content is the log's."""

from __future__ import annotations

import io
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import async_runs
import pytest
from foreign import foreign_copy
from random_runs import random_run
from reseal import Tampered
from trace_format import Shown, shown

import audit
from audit.exporting import TimeAxis, export_trace
from rlt_fsm import Engine, EventLog, LogError, SamplingParams
from runner.sim import SimRunner

BOTH = list(TimeAxis)


def trace_of(path: Path, axis: TimeAxis = TimeAxis.CLOCK, run: int = 1) -> bytes:
    out = io.BytesIO()
    with audit.open_log(path) as log:
        export_trace(log.run(run), out, axis=axis)
    return out.getvalue()


def view_of(path: Path, axis: TimeAxis = TimeAxis.CLOCK) -> Shown:
    return shown(json.loads(trace_of(path, axis)))


def asked(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        rows = db.execute(sql).fetchall()
    db.close()
    return rows


@pytest.fixture(params=["real", "urgent_run", "growing_run", "mixed_run", "async", 6, 40, 47])
def path(
    request: pytest.FixtureRequest, tmp_path: Path, real_log: Path,
    preempting: Callable[..., Tampered],
) -> Path:  # fmt: skip
    """Runs of every kind."""
    if request.param == "real":
        return real_log
    if request.param == "async":
        async_runs.run_to_file(tmp_path / "async.db")
        return tmp_path / "async.db"
    if isinstance(request.param, str):
        return preempting(request.param).path
    with EventLog.open(tmp_path / "random.db") as log:
        done = random_run(request.param, whole_scheduler=True, is_async=True, log=log)
    assert done is not None, "the seed draws a configuration that can run"
    return tmp_path / "random.db"


NAME = "request_id || CASE WHEN generation > 1 THEN '#' || generation ELSE '' END"


@pytest.mark.parametrize("axis", BOTH)
def test_a_request_lane_shows_every_status_and_every_pending_work(path: Path, axis: TimeAxis):
    slices = view_of(path, axis).slices
    for machine, kind in (("status", "status"), ("work", "work")):
        states = asked(
            path,
            f"SELECT {NAME}, dest, count(*) FROM transition WHERE machine = '{machine}'"
            " AND dest IS NOT NULL AND dest <> 'IDLE' GROUP BY 1, 2",
        )
        entered = {(name, dest): count for name, dest, count in states}
        shown_as = Counter((s.lane, s.name) for s in slices if s.kind == kind)
        assert shown_as == entered
    assert all(s.parent in {"ACTIVE", "WAITING"} for s in slices if s.kind == "work")


def test_states_last_from_one_transition_to_the_next(path: Path):
    began = {
        (name, seq): t_ns
        for name, seq, t_ns in asked(
            path, f"SELECT {NAME}, seq, t_ns FROM transition WHERE machine = 'status'"
        )
    }
    for piece in view_of(path).slices:
        if piece.kind == "status":
            assert piece.start == began[piece.lane, piece.args["seq"]] / 1000
            later = [t for (lane, seq), t in began.items()
                     if lane == piece.lane and seq > piece.args["seq"]]  # fmt: skip
            if later:
                assert piece.end == min(later) / 1000


@pytest.mark.parametrize("axis", BOTH)
def test_a_ticket_is_a_slice_of_the_runner_and_points_at_its_requests(path: Path, axis: TimeAxis):
    told = view_of(path, axis)
    tickets = {s.args["ticket"]: s for s in told.slices if s.kind == "ticket"}
    batches = asked(path, "SELECT ticket, works, operation, rows, tokens, reason FROM batch")
    assert batches == [
        (ticket, s.name, *(s.args[key] for key in ("operation", "rows", "tokens", "reason")))
        for ticket, s in sorted(tickets.items())
    ]
    arrows = Counter((s.args["ticket"], d.lane) for s, d in told.arrows)
    rows = asked(path, f"SELECT DISTINCT ticket, {NAME} FROM batch_row")
    assert arrows == Counter(rows)
    assert all(d.name.startswith("TAKEN:") for _, d in told.arrows)


def test_tickets_take_the_time_from_submission_to_completion(path: Path):
    tickets = {s.args["ticket"]: s for s in view_of(path).slices if s.kind == "ticket"}
    sql = "SELECT ticket, t_submitted_ns, t_completed_ns FROM batch WHERE completed_seq > 0"
    for ticket, submitted, completed in asked(path, sql):
        assert (tickets[ticket].start, tickets[ticket].end) == (submitted / 1000, completed / 1000)


def test_there_are_as_many_ticket_lanes_as_were_in_flight_at_once(path: Path):
    begins_ends = [
        change
        for submitted, completed, retired in asked(
            path, "SELECT submitted_seq, completed_seq, retired_seq FROM batch"
        )
        for change in ((submitted, 1), (completed or retired, -1))
    ]
    most = max(accumulate(change for _, change in sorted(begins_ends)))
    assert view_of(path).lanes["runner"] == [f"in flight {number + 1}" for number in range(most)]


def test_outputs_preemptions_verdicts_and_refusals_are_marks(path: Path):
    told = view_of(path)
    marks = Counter((lane, e["name"]) for lane, e in told.instants if e["cat"] == "preemption")
    wanted = asked(
        path,
        f"SELECT {NAME}, trigger, count(*) FROM event WHERE trigger IN"
        " ('yield', 'offload', 'offload_resident', 'rewind') GROUP BY 1, 2",
    )
    assert marks == {(name, trigger): count for name, trigger, count in wanted}
    outputs = [
        (lane, *(e["args"][key] for key in ("idx", "token_id", "exit_depth")))
        for lane, e in told.instants if e["cat"] == "output"
    ]  # fmt: skip
    sql = f"SELECT {NAME}, idx, token_id, exit_depth FROM output ORDER BY seq"
    assert outputs == asked(path, sql)
    verdicts = [(lane, e["args"]["reason"]) for lane, e in told.instants if e["cat"] == "verdict"]
    sql = f"SELECT {NAME}, reason FROM event WHERE trigger = 'verdict' ORDER BY seq"
    assert verdicts == asked(path, sql)
    refused = [(e["name"], e["args"]["reason"]) for _, e in told.instants if e["cat"] == "refuse"]
    assert refused == asked(path, f"SELECT 'refuse ' || {NAME}, reason FROM refusal ORDER BY seq")


def test_steps_are_slices_and_what_is_held_are_counters(path: Path):
    told = view_of(path)
    steps = [(s.args["first_seq"], s.args["last_seq"]) for s in told.slices if s.kind == "step"]
    assert steps == asked(path, "SELECT first_seq, last_seq FROM step ORDER BY step")
    free = [e["args"]["blocks"] for e in told.counters if e["name"] == "free"]
    sealed = [free for (free,) in asked(path, "SELECT blocks_free FROM step ORDER BY step")]
    assert free == [b for a, b in zip([None, *sealed], sealed, strict=False) if a != b]


def test_with_steps_as_time_two_runs_that_did_the_same_give_the_same_file(tmp_path: Path):
    for name in ("one.db", "two.db"):
        async_runs.run_to_file(tmp_path / name)
    one, two = (trace_of(tmp_path / name, TimeAxis.STEPS) for name in ("one.db", "two.db"))
    assert one == two
    steps = [s for s in shown(json.loads(one)).slices if s.kind == "step"]
    assert all(s.start == 1000 * int(s.name.removeprefix("step ")) for s in steps)


def test_what_is_open_when_a_log_breaks_off_ends_with_it(tmp_path: Path):
    with EventLog.open(tmp_path / "run.db") as log:
        engine = Engine(SimRunner(), log=log)
        engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=4))
        for _ in range(3):
            engine.step()
        engine.add_request("b", [1], SamplingParams(max_tokens=1))  # commits
        told = view_of(tmp_path / "run.db")
        assert {s.lane for s in told.slices} >= {"a", "b", "steps"}
        engine.close()


def test_another_engines_log_is_a_trace_too_and_without_times_by_steps(real_log: Path):
    copy = foreign_copy(real_log)
    assert trace_of(copy, TimeAxis.STEPS) == trace_of(real_log, TimeAxis.STEPS)
    bare = foreign_copy(real_log, without=["event.t_ns", "step"])
    with pytest.raises(LogError, match="tells no times: take --time steps"):
        trace_of(bare)
    assert view_of(bare, TimeAxis.STEPS).counters == []
