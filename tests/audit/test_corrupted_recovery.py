"""A recovery that keeps what a crash took, or comes where it may not: each is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checking import assert_first
from recovery.cuts import first_events
from recovery.scenes import serve, sim, wanted, whole_run
from reseal import Event, Tampered

import audit
from rlt_fsm import Engine, EventLog


def _recovered(path: Path, whole: EventLog, count: int) -> Tampered:
    """The run broken off after `count` events, recovered, and served to its end."""
    with EventLog.open(path) as log:
        first_events(whole, count, into=log)
        with Engine.recover(log, sim()) as engine:
            serve(engine, wanted())
    return Tampered(path)


@pytest.fixture(scope="session")
def recovered_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recovered with two tickets in flight and pages in the prefix cache; clean."""
    folder, whole = tmp_path_factory.mktemp("recovered"), whole_run("late results, preempting")
    for count in range(80, 300, 3):
        path = folder / f"{count}.db"
        log = _recovered(path, whole, count)
        (recover,) = log.all("recover")
        triggers = [log.trigger(event) for event in _step_of(log, recover)]
        if recover.data.get("evict") and min(map(triggers.count, ("fail_batch", "rewind"))) > 1:
            assert audit.verify(path).ok
            return path
    raise AssertionError("no crash takes tickets, requests and pages")


@pytest.fixture
def recovered(recovered_log: Path, tmp_path: Path) -> Tampered:
    return Tampered(Path(shutil.copy(recovered_log, tmp_path / "recovered.db")))


def _step_of(log: Tampered, event: Event) -> list[Event]:
    return [other for other in log.events if other.step == event.step]


def _found_in_the_recovery(log: Tampered) -> dict[str, str]:
    """What is found in the step of `recover`, by invariant; the last of each."""
    step = log.all("recover")[0].step
    findings = audit.verify(log.seal()).findings
    return {found.invariant: found.message for found in findings if found.step == step}


def test_s13_finds_a_recover_that_is_not_the_first_of_its_step(recovered: Tampered) -> None:
    (recover,) = recovered.all("recover")
    second = recovered.duplicate(recover)
    second.extra = None
    assert "it must be the first" in assert_first(recovered, "S13", second).message


def test_s13_needs_no_row_of_the_step_that_a_crash_broke_off(recovered: Tampered) -> None:
    (recover,) = recovered.all("recover")
    broken = recovered.events[recovered.events.index(recover) - 1].step
    recovered.steps = [step for step in recovered.steps if step.step != broken]
    recovered._chain()
    assert audit.verify(recovered.write()).ok


def test_s13_needs_the_row_of_every_other_step(recovered: Tampered) -> None:
    last = recovered.events[recovered.events.index(recovered.all("recover")[0]) - 1].step
    recovered.steps = [step for step in recovered.steps if step.step != last - 1]
    recovered._chain()
    findings = audit.verify(recovered.write()).findings
    assert [(found.invariant, found.step) for found in findings] == [("S13", last - 1)]


def test_s10_finds_a_recovered_rewind_where_nothing_was_recovered(recovered: Tampered) -> None:
    (recover,) = recovered.all("recover")
    recovered.events.remove(recover)
    assert_first(recovered, "S10", recovered.all("rewind")[0])


@pytest.mark.parametrize("extra", ['{"evict":[]}', None])
def test_s9_finds_pages_that_a_recovery_keeps(recovered: Tampered, extra: str | None) -> None:
    (recover,) = recovered.all("recover")
    recover.extra = extra
    assert "leaves it" in assert_first(recovered, "S9", recover).message


def test_s9_finds_a_recovery_that_evicts_what_the_cache_does_not_keep(recovered: Tampered) -> None:
    (recover,) = recovered.all("recover")
    free = set(range(recovered.config["cache"]["num_blocks"])) - set(recover.data["evict"])
    recover.tell(evict=[*recover.data["evict"], min(free)])
    assert "which the prefix cache does not keep" in assert_first(recovered, "S9", recover).message


def test_s9_and_s4_find_a_request_that_keeps_what_it_had(recovered: Tampered) -> None:
    rewind = recovered.all("rewind", lambda e: "HELD" in recovered.moves[e.move])[-1]
    recovered.events.remove(rewind)
    found = _found_in_the_recovery(recovered)
    assert "blocks referenced" in found["S9"]
    assert "nobody runs after a crash" in found["S4"]


def test_s11_finds_a_ticket_that_outlives_a_crash(recovered: Tampered) -> None:
    losses = _step_of(recovered, recovered.all("recover")[0])
    newest = max(event.ticket for event in losses if event.ticket is not None)
    recovered.drop(*(event for event in losses if event.ticket == newest))
    assert f"leaves tickets [{newest}] unretired" in _found_in_the_recovery(recovered)["S11"]


def test_s11_finds_a_result_that_comes_in_a_recovery(recovered: Tampered) -> None:
    fail = next(
        event
        for event in _step_of(recovered, recovered.all("recover")[0])
        if recovered.trigger(event) == "fail_batch"
    )
    fail.move, fail.reason = recovered.move("complete_batch"), None
    assert "what was in flight is lost" in assert_first(recovered, "S11", fail).message


def test_l1_and_s6_let_a_crash_break_a_step_off_anywhere(tmp_path: Path) -> None:
    whole = whole_run("plain")
    names = {move.move: move.trigger for move in whole.reader().moves(1)}
    selects = [event[0] for event in whole.reader().events(1) if names[event[5]] == "select"]
    log = _recovered(tmp_path / "building.db", whole, selects[len(selects) // 2])
    assert audit.verify(log.path).ok


def test_l1_finds_work_left_lying_in_a_step_that_only_looks_broken_off(tmp_path: Path) -> None:
    whole = whole_run("plain")
    names = {move.move: move.trigger for move in whole.reader().moves(1)}
    submit = [event[0] for event in whole.reader().events(1) if names[event[5]] == "submit"][1]
    log = _recovered(tmp_path / "waiting.db", whole, submit)
    (recover,) = log.all("recover")
    log.events.remove(recover)
    assert "L1" in {found.invariant for found in audit.verify(log.seal()).findings}
