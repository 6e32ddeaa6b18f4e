"""Two rules keep the scheduler from livelock; each alone would do, and without both it stalls."""

from collections.abc import Iterator

import pytest
from livelock_family import FAMILY, workload

import audit
from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import drive
from rlt_fsm.events import Rewound
from rlt_fsm.preemption import Preemption
from rlt_fsm.prompts import script
from rlt_fsm.state import Request
from runner import SimRunner

SEEDS = range(12)


def anybody(self: Preemption, requester: Request) -> list[Request]:
    """Victims that need not be worse than the requester: least urgent first, then largest."""
    victims = [
        request
        for request in self._state.by_ref.values()
        if request is not requester
        and request.blocks
        and not request.work.startswith("TAKEN:")
        and request.status in {"ACTIVE", "WAITING"}
    ]
    return sorted(victims, key=lambda r: (r.spec.params.priority, r.blocks), reverse=True)


def throw_away(self: Preemption, victim: Request, requester: Request) -> None:
    """A suspension that keeps nothing of what was computed."""
    self._runner.release(victim.spec)
    fact = Rewound(victim.ref, "host-full", requester.ref, victim.block_ids)
    self._recorder.record(fact, cause=requester.queued_seq)


@pytest.fixture
def logs() -> Iterator[list[EventLog]]:
    made: list[EventLog] = []
    yield made
    for log in made:
        log.close()


def stalled(seed: int, logs: list[EventLog]) -> bool:
    """Run a workload of the family; whether it was still going after 1,000 steps."""
    work = workload(seed, shape=FAMILY[0])
    runner = SimRunner(max_model_len=128, script=script(work), check=False)
    log = EventLog.memory()
    logs.append(log)
    with Engine(runner, work.config, log) as engine:
        drive(engine, work)
        return engine.has_unfinished_requests()


def test_without_the_order_of_victims_alone_every_workload_drains(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventLog]
) -> None:
    monkeypatch.setattr(Preemption, "_block_victims", anybody)
    assert not any(stalled(seed, logs) for seed in SEEDS)


def test_without_keeping_progress_alone_every_workload_drains(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventLog]
) -> None:
    monkeypatch.setattr(Preemption, "_evict", throw_away)
    assert not any(stalled(seed, logs) for seed in SEEDS)


def test_without_both_most_workloads_stall_and_the_auditor_shows_the_cycle_of_each(
    monkeypatch: pytest.MonkeyPatch, logs: list[EventLog]
) -> None:
    monkeypatch.setattr(Preemption, "_block_victims", anybody)
    monkeypatch.setattr(Preemption, "_evict", throw_away)
    stalls = [stalled(seed, logs) for seed in SEEDS]
    assert sum(stalls) > len(SEEDS) / 2
    for has_stalled, log in zip(stalls, logs, strict=True):
        found = [f for f in audit.verify(log).findings if f.invariant == "L2"]
        if has_stalled:
            assert any("length" in finding.evidence for finding in found)
