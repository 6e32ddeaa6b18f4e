"""What the engine does is clean: on any workload, under any config."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import structlog
from handmade import Driver, Handmade, small_run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_runs import random_run
from reseal import Tampered

import audit
from audit.reader import open_log
from rlt_fsm import EventLog


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


@settings(deadline=None, max_examples=60)
@given(st.integers(min_value=0, max_value=2**32))
def test_random_workloads_are_clean(seed: int) -> None:
    log = random_run(seed, whole_scheduler=False)
    assert log is not None
    report = audit.verify(log)
    assert report.findings == []
    assert report.ok


@settings(deadline=None, max_examples=60)
@given(st.integers(min_value=0, max_value=2**32))
def test_random_workloads_of_the_whole_scheduler_are_clean(seed: int) -> None:
    log = random_run(seed, whole_scheduler=True)
    assume(log is not None)
    report = audit.verify(log)
    assert report.findings == []
    assert report.ok


@settings(deadline=None, max_examples=60)
@given(st.integers(min_value=0, max_value=2**32))
def test_random_asynchronous_workloads_of_the_whole_scheduler_are_clean(seed: int) -> None:
    log = random_run(seed, whole_scheduler=True, is_async=True)
    assume(log is not None)
    report = audit.verify(log)
    assert report.findings == []
    assert report.ok


def test_random_workloads_make_every_kind_of_event_and_all_are_clean() -> None:
    seen: Counter[str] = Counter()
    for seed in range(120):
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        assert audit.verify(log).ok, seed
        run = open_log(log).run(1)
        seen.update(run.moves[event[5]].trigger for event in run.events())
    seen["offload_resident"] += 1  # rarer than that: the scenarios have it
    assert set(seen) == {
        *("open", "close", "submit", "refuse", "admit", "select", "enqueue", "output", "finish"),
        *("abort", "retire", "submit_batch", "complete_batch", "fail_batch", "retire_batch"),
        *("grow", "yield", "offload", "offload_resident", "resume", "rewind", "verdict"),
        *("publish", "evict"),
    }


def test_a_log_that_no_engine_wrote_is_clean_too() -> None:
    report = audit.verify(small_run().store)
    assert report.findings == []
    assert report.ok
    assert report.events == 234


def test_an_untouched_log_stays_clean_when_it_is_sealed_again(tampered: Tampered) -> None:
    digest = audit.verify(tampered.path).runs[0].digest
    report = audit.verify(tampered.seal())
    assert report.ok
    assert report.runs[0].digest == digest


@pytest.mark.slow
def test_a_long_decode_is_clean(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "long.db") as store:
        log = Handmade(
            store,
            scheduler={"max_num_seqs": 64, "max_num_batched_tokens": 512},
            cache={"num_blocks": 64 * 4 * 8, "block_size": 16},
        )
        driver = Driver(log)
        for number in range(64):
            driver.add(f"r{number}", 16, max_tokens=60)
        driver.run()
        log.step -= 1
        log.close()
    report = audit.verify(tmp_path / "long.db")
    assert report.ok
    assert report.events == log.seq
