"""`audit.diff`: the verdicts, the first difference on each level, and both sides in numbers."""

from __future__ import annotations

import sqlite3
from itertools import combinations
from pathlib import Path
from random import Random

import msgspec
import pytest
from preempting_runs import Arrival, run_to_file, urgent_run
from random_runs import random_run
from reseal import Tampered

import audit
from audit import Parting
from audit.timeline import timeline
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.errors import LogError
from runner.sim import SimRunner

ARRIVALS = [Arrival(0, "a", 9, 4), Arrival(2, "b", 5, 6), Arrival(2, "c", 7, 2)]


def run(path: Path, arrivals: list[Arrival] = ARRIVALS, **scheduler: object) -> Path:
    run_to_file(path, arrivals, scheduler={"max_num_seqs": 2, **scheduler})
    return path


def batches(path: Path) -> dict[int, list[tuple[object, ...]]]:
    """What each step ran, from the public views."""
    found: dict[int, list[tuple[object, ...]]] = {}
    with sqlite3.connect(path) as db:
        for step, *row in db.execute(
            "SELECT step, request_id, generation, work, token_start, token_count, depth, replay "
            "FROM batch_row JOIN batch USING (run_id, ticket) ORDER BY ticket, row"
        ):
            found.setdefault(step, []).append(tuple(row))
    return found


def first_other_step(a: Path, b: Path) -> int | None:
    ones, others = batches(a), batches(b)
    steps = sorted(ones.keys() | others.keys())
    return next((step for step in steps if ones.get(step) != others.get(step)), None)


def shown_events(path: Path) -> list[tuple[object, ...]]:
    """Every event but its time, from the public views."""
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT * FROM event ORDER BY seq").fetchall()
    return [row[1:4] + row[5:] for row in rows]


# ---- verdicts ----------------------------------------------------------------------------------


def test_two_runs_of_the_same_are_identical(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a.db"), run(tmp_path / "b.db")
    answer = audit.diff(a, b)
    assert (answer.verdict, answer.differs, answer.ok) == ("identical", False, True)
    assert answer.a.digest == answer.b.digest
    assert answer.first is None
    assert answer.changed == []
    assert answer.summary.a == answer.summary.b


def test_another_turn_is_another_schedule_with_the_same_outputs(tmp_path: Path) -> None:
    a = run(tmp_path / "a.db")
    b = run(tmp_path / "b.db", max_prefill_batches_before_decode=2)
    answer = audit.diff(a, b, level="schedule")
    assert (answer.verdict, answer.differs) == ("same-outputs", True)
    assert answer.same == {"outputs": True, "schedule": False, "events": False}
    assert [(c.field, c.a, c.b) for c in answer.changed] == [
        ("scheduler.max_prefill_batches_before_decode", 1, 2)
    ]
    first = answer.first
    assert first is not None
    assert first.step == first_other_step(a, b) == 3
    assert (first.a.chose.works, first.a.chose.reason) == (("DECODE_RECURRENT",), "decode-due")
    assert (first.b.chose.works, first.b.chose.reason) == (("PROMPT_ATOMIC",), "prompt-ready")
    assert first.b.chose.admitted == ["b"]
    assert [(p.request, p.reason) for p in first.b.chose.passed_over] == [("c", "no-slot")]
    # Both stand at the same place, with the arrivals of the step before and nothing decided yet.
    assert {**first.a.before, "run_id": 0} == {**first.b.before, "run_id": 0}
    assert first.a.before["waiting"] == ["b", "c"]
    assert first.a.after["waiting"] == ["b", "c"]
    assert first.b.after["waiting"] == ["c"]


def test_a_failed_batch_gives_other_outputs(tmp_path: Path) -> None:
    a = run(tmp_path / "a.db")
    runner, b = SimRunner(), tmp_path / "b.db"
    config = from_mapping({"scheduler": {"max_num_seqs": 2}})
    with EventLog.open(b) as log, Engine(runner, config, log) as engine:
        to_come = list(ARRIVALS)
        while to_come or engine.has_unfinished_requests():
            while to_come and to_come[0].at <= engine.current_step:
                _, name, length, tokens, _ = to_come.pop(0)
                params = SamplingParams(max_tokens=tokens)
                engine.add_request(name, list(range(1, length + 1)), params)
            if engine.current_step == 3:
                runner.fail_next()
            engine.step()
    answer = audit.diff(a, b, level="outputs")
    assert answer.verdict == "other-outputs"
    first = answer.first
    assert first is not None
    assert first.request == "a"
    assert first.a.what.startswith("a output 1: token ")
    assert first.b.what == "a has no output 1 (error)"
    assert answer.summary.b.finished["error"] == 1


def test_another_reason_is_another_event_of_the_same_schedule(tampered: Tampered) -> None:
    original = tampered.path.with_name("original.db")
    original.write_bytes(tampered.path.read_bytes())
    (event, *_) = tampered.all("verdict")
    event.reason = "budget rows=0 tokens=0"
    answer = audit.diff(original, tampered.seal())
    assert answer.verdict == "same-schedule"
    assert answer.same == {"outputs": True, "schedule": True, "events": False}
    assert answer.first is not None
    assert answer.first.a.seq == answer.first.b.seq == event.seq
    for level in ("schedule", "outputs"):
        calm = audit.diff(original, tampered.path, level=level)
        assert (calm.differs, calm.first, calm.verdict) == (False, None, "same-schedule")


# ---- where -------------------------------------------------------------------------------------


def test_the_first_difference_is_the_first_event_that_was_changed(
    real_log: Path, tmp_path: Path
) -> None:
    dice = Random(7)
    for number in range(25):
        path = tmp_path / f"{number}.db"
        path.write_bytes(real_log.read_bytes())
        tampered = Tampered(path)
        event = dice.choice(tampered.events[1:])
        event.blocks = (event.blocks or 0) + 1
        answer = audit.first_difference(real_log, tampered.seal())
        assert answer.first is not None
        assert (answer.first.a.seq, answer.first.b.seq) == (event.seq, event.seq)
        assert (answer.first.step, answer.is_cut) == (event.step, False)


def test_digests_or_not_the_first_difference_is_the_same(tmp_path: Path) -> None:
    paths = []
    for seed in range(8):
        with EventLog.open(tmp_path / f"{seed}.db") as log:
            if random_run(seed, whole_scheduler=True, log=log) is not None:
                paths.append(tmp_path / f"{seed}.db")
    for a, b in combinations(paths[:5], 2):
        trusting = audit.diff(a, b, anyway=True)
        thorough = audit.diff(a, b, anyway=True, trust_digests=False)
        assert msgspec.to_builtins(trusting) == msgspec.to_builtins(thorough)
        by_schedule = audit.diff(a, b, anyway=True, level="schedule").first
        assert (None if by_schedule is None else by_schedule.step) == first_other_step(a, b)


def test_every_pair_of_a_run_and_its_twin_is_identical_by_every_event(tmp_path: Path) -> None:
    for seed in range(8):
        for name in "ab":
            with EventLog.open(tmp_path / f"{seed}{name}.db") as log:
                random_run(seed, whole_scheduler=True, log=log)
        a, b = tmp_path / f"{seed}a.db", tmp_path / f"{seed}b.db"
        if EventLog.open_for_reading(a).reader().runs():
            assert shown_events(a) == shown_events(b)
            assert audit.diff(a, b, trust_digests=False).verdict == "identical"


def test_victims_and_reasons_of_both_sides_are_told(tmp_path: Path) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    urgent_run(a)
    run_to_file(
        b,
        [Arrival(0, "a", 4, 4, 1), Arrival(0, "b", 3, 5, 2), Arrival(6, "c", 8, 4, 0),
         Arrival(7, "d", 2, 2, 3)],
        scheduler={"policy": "priority", "max_num_seqs": 2},
        cache={"num_blocks": 40, "block_size": 2},
    )  # fmt: skip
    answer = audit.diff(a, b, level="schedule")
    assert answer.verdict == "same-outputs"
    first = answer.first
    assert first is not None
    preempted = [(one.request, one.how, one.for_whom) for one in first.a.chose.preempted]
    assert preempted == [("b", "yield", "c"), ("b", "offload_resident", "c")]
    assert first.b.chose.preempted == []
    assert first.a.why
    assert first.b.why
    assert answer.summary.a.preempted > 0 == answer.summary.b.preempted


# ---- in numbers --------------------------------------------------------------------------------


def test_the_summary_counts_what_the_views_count(tmp_path: Path) -> None:
    a = run(tmp_path / "a.db")
    b = run(tmp_path / "b.db", max_prefill_batches_before_decode=2)
    summary = audit.diff(a, b).summary
    for path, totals, side in ((a, summary.a, "a"), (b, summary.b, "b")):
        with sqlite3.connect(path) as db:
            (counts,) = db.execute("SELECT count(*), sum(rows), sum(tokens) FROM batch")
            assert (totals.batches, totals.rows, totals.tokens) == counts
            (outputs,) = db.execute("SELECT count(*) FROM output").fetchone()
            assert totals.outputs == outputs
            by_works = db.execute(
                "SELECT works, count(*), sum(rows), sum(tokens) FROM batch GROUP BY 1 ORDER BY 1"
            ).fetchall()
        assert [(line.works, *getattr(line, side)) for line in summary.works] == by_works


def test_waits_are_those_of_the_timeline_and_sorted_by_change(tmp_path: Path) -> None:
    a = run(tmp_path / "a.db")
    b = run(tmp_path / "b.db", max_prefill_batches_before_decode=2)
    waits = audit.diff(a, b).summary.waits
    assert [abs(line.change) for line in waits] == sorted(
        (abs(line.change) for line in waits), reverse=True
    )
    for path, side in ((a, "a"), (b, "b")):
        with audit.replay(path) as opened:
            for line in waits:
                told = timeline(opened, line.request)
                assert getattr(line, side) == told.waited


# ---- what is no difference, and what cannot be compared ----------------------------------------


def test_a_log_without_its_end_is_inconclusive_until_it_differs(
    tmp_path: Path, tampered: Tampered
) -> None:
    whole = tmp_path / "whole.db"
    whole.write_bytes(tampered.path.read_bytes())
    for kept in (60, 41, 12, 1):
        del tampered.events[kept:]
        answer = audit.diff(whole, tampered.seal())
        assert (answer.verdict, answer.differs, answer.is_cut) == ("inconclusive", False, True)
        assert answer.first is None
        assert not answer.ok
        assert audit.first_difference(tampered.path, whole) == Parting(first=None, is_cut=True)


def test_a_log_without_its_end_that_differs_is_different(
    tmp_path: Path, tampered: Tampered
) -> None:
    whole = tmp_path / "whole.db"
    whole.write_bytes(tampered.path.read_bytes())
    del tampered.events[80:]
    tampered.selects("PROMPT_ATOMIC")[0].c -= 1
    answer = audit.diff(whole, tampered.seal(), level="schedule")
    assert (answer.verdict, answer.differs, answer.is_cut) == ("same-outputs", True, True)


def test_fields_that_one_version_does_not_know_are_no_difference(
    tmp_path: Path, tampered: Tampered
) -> None:
    newer = tmp_path / "newer.db"
    newer.write_bytes(tampered.path.read_bytes())
    tampered.configure("scheduler", a_field_of_tomorrow=3)
    arrival = tampered.all("submit")[0]
    arrival.tell(params={**arrival.data["params"], "a_parameter_of_tomorrow": 1})
    answer = audit.diff(newer, tampered.seal())
    assert answer.verdict == "identical"
    assert answer.unknown == ["scheduler.a_field_of_tomorrow"]
    assert answer.a.digest != answer.b.digest


@pytest.mark.parametrize(
    ("arrivals", "why"),
    [
        ([Arrival(0, "a", 9, 4), Arrival(2, "b", 5, 6), Arrival(2, "c", 7, 3)], "request c has"),
        (ARRIVALS[:2], "never got c"),
        ([*ARRIVALS, Arrival(3, "odd\nid", 2, 2)], r"never got odd\\nid"),
    ],
)
def test_runs_of_different_workloads_are_told_apart_first(
    arrivals: list[Arrival], why: str, tmp_path: Path
) -> None:
    a, b = run(tmp_path / "a.db"), run(tmp_path / "b.db", arrivals)
    with pytest.raises(LogError, match=f"different workloads .*{why}.*--anyway"):
        audit.diff(a, b)
    assert audit.diff(a, b, anyway=True).verdict == "other-outputs"


def test_comparing_changes_neither_log(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a.db"), run(tmp_path / "b.db", max_num_seqs=1)
    before = a.read_bytes(), b.read_bytes()
    audit.diff(a, b)
    audit.first_difference(a, b)
    assert (a.read_bytes(), b.read_bytes()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.db", "b.db"}
