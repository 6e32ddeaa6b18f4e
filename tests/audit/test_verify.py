"""`audit.verify`: verdicts, several runs, logs without their end, what a report holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from handmade import Handmade, small_run
from real_runs import run_to_file
from reseal import Tampered

import audit
from audit.findings import MAX_FINDINGS
from rlt_fsm import Engine, EventLog, LogError, SamplingParams
from runner.sim import SimRunner


def test_a_clean_log_is_ok(real_log: Path) -> None:
    report = audit.verify(real_log)
    assert report.verdict == "clean"
    assert report.ok
    assert report.findings == []
    assert report.log == str(real_log)
    assert report.events > 100
    assert report.seconds > 0
    (part,) = report.runs
    assert (part.run_id, part.requests, part.why, part.counts) == (1, 7, None, {})
    assert part.events == report.events
    assert part.steps == 26


def test_a_path_may_be_a_string(real_log: Path) -> None:
    assert audit.verify(str(real_log)).ok


def test_a_log_in_memory_stays_open_for_its_owner() -> None:
    with EventLog.memory() as log:
        small_run(log)
        assert audit.verify(log).ok
        small_run(log)
        assert len(audit.verify(log).runs) == 2


def test_a_finding_names_invariant_seq_step_request_and_evidence(tampered: Tampered) -> None:
    output = tampered.all("output")[0]
    output.a = 7
    finding = audit.verify(tampered.seal()).findings[0]
    assert (finding.invariant, finding.seq, finding.step) == ("S8", output.seq, output.step)
    assert finding.request_id == "a"
    assert finding.message == "a has output 7 where output 0 is due."
    assert finding.evidence == {
        "idx": 7,
        "due": 0,
        "generation": 1,
        "previous_seq": tampered.selects("DECODE_CODA")[0].seq,
    }


def test_findings_come_in_order_of_seq(tampered: Tampered) -> None:
    tampered.all("output")[1].b = 600
    tampered.selects("PROMPT_ATOMIC")[0].c = 0
    tampered.all("retire_batch")[5].ticket = 99
    seqs = [finding.seq for finding in audit.verify(tampered.seal()).findings]
    assert len(seqs) > 2
    assert seqs == sorted(seqs)


def test_one_fault_that_repeats_is_listed_once_and_counted(tampered: Tampered) -> None:
    for select in tampered.all("select", lambda e: e.ref == 0):
        select.blocks += 1
    report = audit.verify(tampered.seal())
    assert len(report.findings) == 1
    assert report.runs[0].counts == {"S9": len(tampered.all("select", lambda e: e.ref == 0))}


def test_a_flood_of_findings_is_cut_and_counted() -> None:
    log = Handmade(cache={"num_blocks": 60, "block_size": 2})
    for number in range(MAX_FINDINGS + 20):
        ref = log.submit(f"r{number}", 1)
        log.step_events[-1] = log.step_events[-1]._replace(blocks=7)
        log.abort(ref)
        log.retire(ref)
    log.end_step()
    log.close()
    report = audit.verify(log.store)
    assert len(report.findings) == MAX_FINDINGS
    assert report.runs[0].counts == {"S9": MAX_FINDINGS + 20}


# ---- inconclusive --------------------------------------------------------------------------------


def test_a_log_without_runs_is_inconclusive(tmp_path: Path) -> None:
    EventLog.open(tmp_path / "new.db").close()
    report = audit.verify(tmp_path / "new.db")
    assert report.verdict == "inconclusive"
    assert not report.ok
    assert report.runs == []


def test_a_run_without_events_is_inconclusive() -> None:
    log = EventLog.memory()
    Handmade(log, cache={"num_blocks": 60})  # its step was never written
    report = audit.verify(log)
    assert report.verdict == "inconclusive"
    assert report.runs[0].why == "it has no events"


def test_a_run_that_is_being_written_is_inconclusive(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "run.db") as log, Engine(SimRunner(), log=log) as engine:
        engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=3))
        engine.step()
        engine.add_request("b", [1, 2, 3])
        report = audit.verify(tmp_path / "run.db")
        assert report.verdict == "inconclusive"
        assert report.findings == []
        assert "still being written or cut off" in (report.runs[0].why or "")
    assert audit.verify(tmp_path / "run.db").ok


@pytest.mark.parametrize("left", range(100, 124))
def test_a_log_that_is_cut_off_at_its_end_is_inconclusive(tampered: Tampered, left: int) -> None:
    """Wherever it is cut: between steps, or within one whose row was there already."""
    tampered.events = tampered.events[:left]
    report = audit.verify(tampered.write())
    assert report.findings == []
    assert report.verdict == "inconclusive"


@pytest.mark.parametrize("left", range(100, 124))
def test_a_log_that_is_cut_off_with_its_step_rows_is_inconclusive(
    tampered: Tampered, left: int
) -> None:
    tampered.events = tampered.events[:left]
    tampered.steps = [step for step in tampered.steps if step.last_seq <= left]
    report = audit.verify(tampered.write())
    assert report.findings == []
    assert report.verdict == "inconclusive"


def test_findings_win_over_a_missing_end(tampered: Tampered) -> None:
    tampered.all("output")[0].a = 7
    tampered.events.pop()
    report = audit.verify(tampered.seal())
    assert report.verdict == "findings"
    assert report.runs[0].why is not None


# ---- several runs --------------------------------------------------------------------------------


def test_the_worst_run_decides() -> None:
    log = EventLog.memory()
    small_run(log)
    Handmade(log, cache={"num_blocks": 60}).end_step()
    assert [part.verdict for part in audit.verify(log).runs] == ["clean", "inconclusive"]
    assert audit.verify(log).verdict == "inconclusive"
    bad = Handmade(log, cache={"num_blocks": 60})
    bad.step_events[0] = bad.step_events[0]._replace(cause=5)
    bad.end_step()
    report = audit.verify(log)
    assert [part.verdict for part in report.runs] == ["clean", "inconclusive", "findings"]
    assert report.verdict == "findings"


def test_one_run_can_be_asked_for() -> None:
    log = EventLog.memory()
    small_run(log)
    Handmade(log, cache={"num_blocks": 60}).end_step()
    assert audit.verify(log, run=1).ok
    assert audit.verify(log, run=2).verdict == "inconclusive"


def test_a_run_that_is_not_there_is_named_with_those_that_are(real_log: Path) -> None:
    with pytest.raises(LogError, match=r"there is no run 5; its runs: 1"):
        audit.verify(real_log, run=5)


# ---- input ---------------------------------------------------------------------------------------


def test_the_log_is_not_changed(real_log: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(real_log, tmp_path / "copy.db"))
    before = path.read_bytes()
    audit.verify(path)
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["copy.db"]


def test_a_header_that_cannot_be_read_is_an_error_not_a_finding(tampered: Tampered) -> None:
    tampered.model = {"name": "nothing else"}
    with pytest.raises(LogError, match="run 1: its model cannot be read"):
        audit.verify(tampered.write())


def test_progress_is_told_in_events() -> None:
    log = Handmade(cache={"num_blocks": 60})
    for _ in range(600):
        log.end_step()
        log.begin_step(log.step + 1)
        log.refuse("nobody")
    log.end_step()
    log.close()
    told: list[tuple[int, int]] = []
    assert audit.verify(log.store, progress=lambda done, total: told.append((done, total))).ok
    assert told == [(256, 602), (512, 602)]


def test_every_run_of_a_file_is_read(tmp_path: Path) -> None:
    run_to_file(tmp_path / "two.db")
    run_to_file(tmp_path / "two.db")
    report = audit.verify(tmp_path / "two.db")
    assert report.ok
    assert [part.run_id for part in report.runs] == [1, 2]
    assert report.runs[0].digest == report.runs[1].digest


def test_odd_ids_are_told_as_they_are() -> None:
    log = Handmade(cache={"num_blocks": 60, "block_size": 2})
    ref = log.submit("né\n\U0001f600#1", 1)
    log.step_events[-1] = log.step_events[-1]._replace(blocks=1)
    log.abort(ref)
    log.retire(ref)
    log.end_step()
    log.close()
    assert audit.verify(log.store).findings[0].request_id == "né\n\U0001f600#1"
