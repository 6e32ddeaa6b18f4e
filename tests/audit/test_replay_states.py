"""`audit.replay`: the state that a log gives is the engine's, whichever way one came to a place."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from live_states import live_states, of_engine, of_log
from random_runs import random_run
from real_runs import run_to_file
from recovery.cuts import first_events
from recovery.scenes import SCENES, sim, whole_run
from reseal import Tampered

import audit
from audit.reader import open_log
from audit.replay import Replay
from rlt_fsm import Engine, EventLog, LogError
from runner.sim import SimRunner

SEEDS = range(40)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_from_the_log_is_the_engines_after_every_call(
    seed: int,
    is_async: bool,  # noqa: FBT001  # one case of two
) -> None:
    with live_states() as states:
        log = random_run(seed, whole_scheduler=True, is_async=is_async)
    if log is None:
        return
    with audit.replay(log) as replay:
        for seq, live in states.items():
            assert of_log(replay.at(seq=seq)) == live


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_backwards_and_leaps_come_to_the_same_states(seed: int) -> None:
    log = random_run(seed, whole_scheduler=True)
    if log is None:
        return
    opened = open_log(log)
    forwards = Replay(opened, opened.run(1), every=16)
    states = [forwards.at(seq=seq).as_dict() for seq in range(forwards.last_seq + 1)]
    backwards = Replay(opened, opened.run(1), every=16)
    for seq in range(forwards.last_seq, -1, -1):
        assert backwards.at(seq=seq).as_dict() == states[seq]
    for seq in range(0, forwards.last_seq, 29):
        leaping = Replay(opened, opened.run(1), every=7, leap_beyond=0)
        assert leaping.at(seq=seq).as_dict() == states[seq]


@pytest.mark.parametrize("scene", SCENES)
def test_the_state_from_the_log_is_the_engines_after_a_recovery(scene: str) -> None:
    whole = whole_run(scene)
    for count in range(20, whole.reader().runs()[0].last_seq, 23):
        log = first_events(whole, count)
        with Engine.recover(log, sim()) as engine:
            states = {}
            for _ in range(4):
                states[engine.state.seq] = of_engine(engine.state)
                engine.step()
        opened = open_log(log)
        near, leaping = (
            Replay(opened, opened.run(1), every=7, leap_beyond=far) for far in (1 << 40, 0)
        )
        for seq, live in states.items():
            assert of_log(near.at(seq=seq)) == live, count
            assert of_log(leaping.at(seq=seq)) == live, count


def test_checkpoints_are_thinned_out_and_nothing_is_lost(
    real_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("audit.replay")  # `audit.replay` is the function
    monkeypatch.setattr(module, "CHUNK", 2)
    monkeypatch.setattr(module, "MAX_CHECKPOINTS", 5)
    with audit.replay(real_log) as plain, open_log(real_log) as log:
        thinned = Replay(log, log.run(1), every=2)
        for seq in (190, 3, 100, 99, 98, 12, 191, 0):
            assert thinned.at(seq=seq).as_dict() == plain.at(seq=seq).as_dict()


def test_a_state_that_was_given_out_does_not_change(real_log: Path) -> None:
    with audit.replay(real_log) as replay:
        before = replay.at(seq=60)
        told = before.as_dict()
        replay.end()
        replay.at(seq=80)
        assert before.as_dict() == told


def test_a_step_is_the_state_after_its_last_event(real_log: Path) -> None:
    with open_log(real_log) as log:
        rows = list(log.run(1).steps())
    with audit.replay(real_log) as replay:
        assert replay.last_step == rows[-1].step
        for row in [*rows, *reversed(rows)]:
            state = replay.at(step=row.step)
            assert (state.seq, state.step) == (row.last_seq, row.step)
            assert len(state.waiting) == row.waiting
            assert len(state.slot_holders) == row.slots_held
            assert len(state.free_blocks) == row.blocks_free


def test_a_step_without_events_is_the_state_before_it() -> None:
    with EventLog.memory() as log, Engine(SimRunner(), log=log) as engine:
        engine.add_request("a", [1])
        while engine.has_unfinished_requests():
            engine.step()
        done, step = engine.state.seq, engine.current_step
        engine.advance_to(step + 50)
        engine.add_request("b", [1])
        engine.close()
        with audit.replay(log) as replay:
            assert replay.at(step=step + 40).seq == done


def test_seq_0_is_before_everything(real_log: Path) -> None:
    with audit.replay(real_log) as replay:
        state = replay.at(seq=0)
        assert (state.requests, state.waiting, len(state.free_blocks)) == ({}, [], 60)


def test_a_place_that_is_not_there_is_refused_in_a_sentence(real_log: Path) -> None:
    with audit.replay(real_log) as replay:
        seq, step = replay.last_seq, replay.last_step
        for where, sentence in (
            ({"seq": seq + 1}, f"run 1 has seq 1 to {seq}: there is no seq {seq + 1}"),
            ({"seq": -1}, "there is no seq -1"),
            ({"step": step + 1}, f"run 1 has steps 0 to {step}: there is no step {step + 1}"),
            ({"step": -1}, "there is no step -1"),
        ):
            with pytest.raises(LogError, match=sentence):
                replay.at(**where)


def test_one_place_is_asked_for(real_log: Path) -> None:
    with audit.replay(real_log) as replay:
        for both in ({}, {"seq": 1, "step": 1}):
            with pytest.raises(LogError, match="give one of the two"):
                replay.at(**both)


def test_without_a_number_the_newest_run_is_meant(tmp_path: Path) -> None:
    run_to_file(tmp_path / "two.db")
    run_to_file(tmp_path / "two.db")
    with audit.replay(tmp_path / "two.db") as replay:
        assert replay.run.info.run_id == 2
    with audit.replay(tmp_path / "two.db", run=1) as replay:
        assert replay.end().run_id == 1
    with pytest.raises(LogError, match="there is no run 3; its runs: 1, 2"):
        audit.replay(tmp_path / "two.db", run=3)


def test_a_log_without_runs_has_no_states() -> None:
    with pytest.raises(LogError, match="the log has no runs"):
        audit.replay(EventLog.memory())


def test_an_event_that_cannot_be_followed_is_noted_and_passed_over(tampered: Tampered) -> None:
    submits, selects = tampered.all("submit"), tampered.all("select")
    submits[1].extra = "{"
    selects[0].ref = 5
    with audit.replay(tampered.seal()) as replay:
        state = replay.end()
    said = "could not be followed: {} is not there; what follows of it is passed over"
    assert f"seq {submits[1].seq} could not be followed" in state.notes[0]
    assert f"seq {selects[0].seq} {said.format('a#3')}" in state.notes
    assert len([note for note in state.notes if "b#1" in note]) == 1
    assert state.outcome == "drained"
    assert state.submitted == len(submits)
