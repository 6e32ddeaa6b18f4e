"""What one reading of a run's events comes to is what the engine has told of each step."""

from __future__ import annotations

from collections import Counter

import pytest
from foreign import foreign_copy
from random_runs import random_run

from audit.reader import open_log
from audit.reporting import kinds
from audit.reporting.figures import run_view
from audit.reporting.gather import gather
from audit.reporting.page import render
from audit.reporting.waits import percentiles


def runs_of(seeds, *, is_async):
    for seed in seeds:
        log = random_run(seed, whole_scheduler=True, is_async=is_async)
        if log is not None:
            yield seed, log


@pytest.mark.parametrize("is_async", [False, True])
def test_waiting_slots_and_queues_are_those_of_each_step(is_async):
    seen = 0
    for seed, log in runs_of(range(25), is_async=is_async):
        with open_log(log) as opened:
            run = opened.run(1)
            gathered = gather(run)
            rows = list(run.steps())
        assert gathered.unread == 0, seed
        assert list(gathered.steps) == [row.step for row in rows], seed
        assert list(gathered.waiting) == [row.waiting for row in rows], seed
        assert list(gathered.held) == [row.slots_held for row in rows], seed
        assert all(min(column) >= 0 for column in gathered.queued.values()), seed
        assert all(column[-1] == 0 for column in gathered.queued.values()), "closed: all drained"
        seen += 1
    assert seen > 10


def test_a_lane_ends_when_its_request_is_gone():
    for seed, log in runs_of(range(15), is_async=False):
        with open_log(log) as opened:
            gathered = gather(opened.run(1))
        last = dict(zip(gathered.lanes["ref"], gathered.lanes["kind"], strict=True))
        assert set(last.values()) <= {kinds.GONE}, seed


def test_preempted_requests_are_told_apart_by_their_kv():
    told = {kinds.PARKED: 0, kinds.OFFLOADED: 0, kinds.REWOUND: 0, kinds.REPLAYED: 0}
    for _, log in runs_of(range(120), is_async=False):
        with open_log(log) as opened:
            for kind in gather(opened.run(1)).lanes["kind"]:
                if kind in told:
                    told[kind] += 1
    assert all(told.values()), told


def test_a_log_of_another_engine_is_shown_without_what_it_lacks(logs):
    for without in ((), ("step",), ("step", "event.cause", "event.blocks", "block_change")):
        view = run_view(foreign_copy(logs("small"), without=without), None)
        assert view.figures[0].value == 4
        assert "<!doctype html>" in render([view])
        if without:
            assert view.notes


def test_percentiles_are_by_nearest_rank():
    told = percentiles(Counter(range(1, 201)))
    assert told is not None
    assert (told.count, told.mean, told.ranks) == (200, 100.5, [100, 180, 190, 198, 200])
    assert percentiles(Counter()) is None
    few = percentiles(Counter({3: 1}))
    assert few is not None
    assert few.ranks == [3] * 5
