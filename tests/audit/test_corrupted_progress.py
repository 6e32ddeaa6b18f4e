"""L2: a run that turns in circles, or gets nowhere."""

from __future__ import annotations

import pytest
from handmade import Driver, Handmade

import audit
from audit import Finding
from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.events import Rewound
from rlt_fsm.log.port import EventRow
from rlt_fsm.preemption import Preemption
from rlt_fsm.state import Request
from runner.sim import SimRunner

TIGHT = {
    "scheduler": {
        "policy": "priority",
        "enable_preemption": True,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 6,
        "prefill_chunk_size": 4,
    },
    "cache": {"num_blocks": 40, "block_size": 2, "incremental_allocation": True},
    "execution": {"atomic_prefill": False},
}


class TakesFromAnyone(Preemption):
    """A double that breaks the victim order."""

    def _block_victims(self, requester: Request) -> list[Request]:
        others = [other for other in self._state.by_ref.values() if other is not requester]
        victims = [other for other in others if other.blocks and "TAKEN" not in other.work]
        victims.sort(key=lambda request: (request.order_key[0], request.blocks), reverse=True)
        return victims


class KeepsNothing(Preemption):
    """A double that throws away what a victim has computed."""

    def _evict(self, victim: Request, requester: Request) -> None:
        self._runner.release(victim.spec)
        self._recorder.record(
            Rewound(victim.ref, "host-full", requester.ref, victim.block_ids),
            cause=requester.queued_seq,
        )


class Both(TakesFromAnyone, KeepsNothing):
    """Both at once."""


def _run(double: type[Preemption], seed: int, monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """Ten requests in a tight pool, for 600 steps at most: the latest cycle closes at 358."""
    monkeypatch.setattr("rlt_fsm.scheduler.Preemption", double)
    log = EventLog.memory()
    with Engine(SimRunner(check=False), from_mapping(TIGHT), log) as engine:
        for i in range(10):
            length, max_tokens = 1 + (7 * i + seed) % 11, 1 + (5 * i + seed) % 6
            params = SamplingParams(max_tokens=max_tokens, priority=(i + seed) % 3, seed=i)
            engine.add_request(f"r{i}", list(range(1, length + 1)), params)
        for _ in range(600):
            if engine.has_unfinished_requests():
                engine.step()
    return log


def _livelocks(log: EventLog) -> list[Finding]:
    return [finding for finding in audit.verify(log).findings if finding.invariant == "L2"]


@pytest.mark.parametrize("double", [Preemption, TakesFromAnyone, KeepsNothing])
def test_l2_is_silent_where_a_run_drains_although_one_rule_is_broken(
    double: type[Preemption], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4):
        log = _run(double, seed, monkeypatch)
        assert log.reader().runs()[0].outcome == "drained"
        assert _livelocks(log) == []


def test_l2_finds_every_livelock_where_both_are_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        log = _run(Both, seed, monkeypatch)
        (finding,) = _livelocks(log)
        assert finding.message.startswith("Livelock: step")
        assert finding.evidence["length"] > 1


def test_l2_tells_the_cycle_its_members_and_the_key_that_starves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (finding,) = _livelocks(_run(Both, 5, monkeypatch))
    assert finding.message == (
        "Livelock: step 75 ends in the state of step 69, with no progress since step 56: a cycle "
        "of 6 steps among r0, r2, r3, r6, r9, in which PROMPT_PRELUDE starves."
    )
    assert finding.step == 75
    assert finding.evidence == {
        "length": 6,
        "first_step": 69,
        "members": ["r0", "r2", "r3", "r6", "r9"],
        "batches": {"PROMPT_ATOMIC": 4, "DECODE_PRELUDE": 1, "DECODE_RECURRENT": 1},
        "starving": ["PROMPT_PRELUDE"],
        "last_progress_step": 56,
        "alive": 7,
    }


def test_l2_tells_a_cycle_that_the_log_goes_through_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in (0, 2, 4):
        log = _run(Both, seed, monkeypatch)
        (finding,) = _livelocks(log)
        first, length = finding.evidence["first_step"] + 1, finding.evidence["length"]
        rounds: list[list[tuple[object, ...]]] = [[] for _ in range(4)]
        for event in map(EventRow._make, log.reader().events(1)):
            turn, at = divmod(event.step - first, length)
            if 0 <= turn < len(rounds):
                rounds[turn].append((at, event.move, event.ref, event.blocks, event.b, event.c))
        assert rounds[0] != []
        assert all(again == rounds[0] for again in rounds)


def test_l2_finds_a_run_that_gets_nowhere_without_a_cycle() -> None:
    """Somebody comes and goes in every step, so that no two have the same past; `a` never fits."""
    log = Handmade(cache={"num_blocks": 8, "block_size": 2})
    log.submit("a", 100)
    for number in range(80):
        ref = log.submit(f"x{number}", 1)
        log.abort(ref)
        log.retire(ref)
        log.end_step()
        log.begin_step(log.step + 1)
    log.step -= 1
    log.close()
    (finding,) = audit.verify(log.store).findings
    assert (finding.invariant, finding.step) == ("L2", 68)
    assert finding.evidence == {
        "steps": 68,
        "last_progress_step": 0,
        "alive": 1,
        "allowed": 68,
    }


def test_l2_does_not_count_the_steps_that_nobody_lived_through() -> None:
    log = Handmade(cache={"num_blocks": 64, "block_size": 2})
    driver = Driver(log)
    for _ in range(3):
        driver.add("a", 2, max_tokens=2)
        driver.run()
        log.step += 100
    log.close()
    assert audit.verify(log.store).ok
