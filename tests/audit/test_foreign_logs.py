"""A database with the public names alone is a log: verified, replayed and questioned like ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import preempting_runs
import pytest
from foreign import foreign_copy
from random_runs import random_run
from reseal import Tampered
from typer.testing import CliRunner

import audit
from audit.cli import app
from audit.explain import explain
from audit.timeline import timeline
from rlt_fsm import EventLog, LogError
from rlt_fsm.errors import LogUnavailable, NotALog

Preempting = Callable[..., Tampered]


def same_but_for_time(report: audit.Report) -> object:
    findings = msgspec.to_builtins(report.findings)
    runs = [(r.verdict, r.why, r.events, r.steps, r.requests, r.counts) for r in report.runs]
    return report.verdict, findings, runs


# ---- what the public names hold is enough --------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 30, 2))
def test_the_views_alone_give_the_same_report(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        if random_run(seed, whole_scheduler=True, log=log) is None:
            pytest.skip("this seed draws a configuration that is refused")
    own, foreign = audit.verify(path), audit.verify(foreign_copy(path))
    assert own.ok
    assert same_but_for_time(foreign) == same_but_for_time(own)
    assert foreign.runs[0].unchecked == []


@pytest.mark.parametrize("name", ["urgent_run", "growing_run", "returning_run", "mixed_run"])
def test_the_views_alone_give_the_same_states(preempting: Preempting, name: str) -> None:
    path = preempting(name).path
    with audit.replay(path) as own, audit.replay(foreign_copy(path)) as foreign:
        assert foreign.last_seq == own.last_seq
        for seq in (0, own.last_seq // 3, own.last_seq, own.last_seq // 2):
            assert foreign.at(seq=seq).as_dict() == own.at(seq=seq).as_dict()


def test_the_views_alone_answer_the_same_questions(preempting: Preempting) -> None:
    path = preempting("urgent_run").path
    with audit.replay(path) as own, audit.replay(foreign_copy(path)) as foreign:
        for request in "abcd":
            assert timeline(foreign, request) == timeline(own, request)
            assert explain(foreign, request) == explain(own, request)


def test_a_fault_is_found_at_the_same_place(tampered: Tampered) -> None:
    tampered.selects("DECODE_RECURRENT")[1].b += 1
    tampered.all("output")[2].b = 600
    path = tampered.seal()
    own, foreign = audit.verify(path), audit.verify(foreign_copy(path))
    assert own.verdict == "findings"
    assert same_but_for_time(foreign) == same_but_for_time(own)


def test_a_broken_seal_is_found(tampered: Tampered) -> None:
    tampered.steps[4].digest = bytes(32)
    report = audit.verify(foreign_copy(tampered.write()))
    assert {finding.invariant for finding in report.findings} == {"S13"}


# ---- optional names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        ("event.cause", "`event` has no column `cause`"),
        ("event.reason", "`event` has no column `reason`"),
        ("event.blocks", "`event` has no column `blocks`: S9"),
        ("event.t_ns", "`event` has no column `t_ns`"),
        ("step", "there is no `step`"),
        ("step.waiting", "`step` has no column `waiting`"),
        ("step.ticket", "`step` has no column `ticket`"),
        ("step.digest", "`step` has no column `digest`"),
        ("run.digest", "`run` has no column `digest`"),
        ("run.outcome", "`run` has no column `outcome`"),
        ("run.last_seq", "`run` has no column `last_seq`"),
    ],
)
@pytest.mark.parametrize("name", ["urgent_run", "growing_run", "mixed_run"])
def test_an_optional_name_that_is_missing_is_named_and_costs_no_more(
    preempting: Preempting, name: str, missing: str, note: str
) -> None:
    path = foreign_copy(preempting(name).path, without=[missing])
    # What is not told cannot be sealed either.
    if missing.startswith("event."):
        with sqlite3.connect(path) as db:
            db.execute("UPDATE step SET digest = NULL")
        db.close()
    report = audit.verify(path)
    assert report.ok, report.findings[:1]
    assert note in report.runs[0].unchecked[0]
    shown = CliRunner().invoke(app, ["verify", str(path)])
    assert shown.exit_code == 0
    assert f"note: {note}" in shown.stdout


def test_the_other_names_may_all_be_missing(real_log: Path) -> None:
    # JSON in SQLite rounds log-probabilities; `output` has them whole.
    assert audit.verify(foreign_copy(real_log, tables=("run", "event", "step", "output"))).ok


def test_rows_and_batches_may_be_told_by_their_own_views(preempting: Preempting) -> None:
    path = foreign_copy(preempting("mixed_run").path, without=["step.digest"])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE event SET data = NULL WHERE \"trigger\" IN ('select', 'submit_batch')")
        db.execute("UPDATE event SET data = NULL WHERE \"trigger\" = 'open'")
    db.close()
    assert audit.verify(path).ok
    with sqlite3.connect(path) as db:
        db.execute("UPDATE batch_row SET token_start = token_start + 1 WHERE ticket = 3")
    db.close()
    (first, *_) = audit.verify(path).findings
    assert first.invariant == "S7"


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("run", "no table or view `run`"),
        ("event", "no table or view `event`"),
        ("event.seq", "no column `seq` in `event`"),
        ("event.slot_to", "no column `slot_to` in `event`"),
        ("run.config", "no column `config` in `run`"),
        ("step.first_seq", "no column `first_seq` in `step`"),
    ],
)
def test_a_mandatory_name_that_is_missing_is_one_sentence(
    real_log: Path, tmp_path: Path, missing: str, sentence: str
) -> None:
    own = tmp_path / "run.db"
    own.write_bytes(real_log.read_bytes())
    path = foreign_copy(own, without=[missing])
    with pytest.raises(NotALog) as error:
        audit.verify(path)
    assert str(error.value).endswith(f"not an event log: it has {sentence}, which a log needs")
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE event SET seq = 'x' WHERE seq = 5", "whose seq is 'x': it must be"),
        ("UPDATE event SET step = 1.5 WHERE seq = 5", "whose step is 1.5: it must be"),
        ("UPDATE step SET last_seq = NULL", "whose last_seq is None: it must be a whole number"),
        ("UPDATE run SET model = NULL", "its model cannot be read"),
        ("UPDATE run SET config = '[]'", "its config cannot be read"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_one_sentence(
    real_log: Path, tmp_path: Path, change: str, sentence: str
) -> None:
    own = tmp_path / "run.db"
    own.write_bytes(real_log.read_bytes())
    path = foreign_copy(own)
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    with pytest.raises(LogError, match=sentence):
        audit.verify(path)


def test_data_that_is_no_json_is_a_finding_at_its_event(real_log: Path, tmp_path: Path) -> None:
    own = tmp_path / "run.db"
    own.write_bytes(real_log.read_bytes())
    path = foreign_copy(own, without=["step"])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE event SET data = '{' WHERE \"trigger\" = 'select' AND ticket = 3")
    db.close()
    (first, *_) = audit.verify(path).findings
    assert (first.invariant, first.step) == ("S13", 3)
    assert "cannot be read" in first.message


def test_a_log_of_another_engine_is_never_written_to(real_log: Path, tmp_path: Path) -> None:
    own = tmp_path / "run.db"
    own.write_bytes(real_log.read_bytes())
    path = foreign_copy(own)
    before = path.read_bytes()
    audit.verify(path)
    assert path.read_bytes() == before
    with EventLog.open_for_reading(path) as log, pytest.raises(LogUnavailable):
        log.begin_run(None)  # type: ignore[arg-type]
    with pytest.raises(NotALog):
        EventLog.open(path)


def test_all_sorts_of_names_and_many_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    preempting_runs.passing_run(path)
    preempting_runs.urgent_run(path)
    copy = foreign_copy(path)
    with sqlite3.connect(copy) as db:
        for table in ("event", "batch_row", "output", "request", "block_change"):
            db.execute(f"UPDATE {table} SET request_id = '☃ ' || request_id || x'0a'")
        db.execute("UPDATE step SET digest = NULL")
        db.execute("UPDATE event SET data = NULL, reason = NULL WHERE \"trigger\" = 'verdict'")
    db.close()
    report = audit.verify(copy)
    assert [run.run_id for run in report.runs] == [1, 2]
    with pytest.raises(LogError, match="there is no run 3"):
        audit.verify(copy, run=3)
