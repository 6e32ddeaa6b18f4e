"""Wherever a log breaks off, the recovered run ends like the one that nothing interrupted.

The engine commits whole calls, so a real crash leaves few of these cuts; an engine that recovers
from every one of them need not know which.
"""

import pytest
from recovery.cuts import first_events
from recovery.scenes import SCENES, outputs_in, serve, sim, wanted, whole_run

import audit
from rlt_fsm import Engine

EVERY = 9  # events; another remainder for each scene


@pytest.mark.parametrize("scene", SCENES)
def test_wherever_a_run_breaks_off_it_ends_with_the_same_tokens_and_a_clean_log(scene):
    whole = whole_run(scene)
    expected = outputs_in(whole)
    last_seq = whole.reader().runs()[0].last_seq
    assert last_seq > 200
    for count in range(1 + list(SCENES).index(scene), last_seq, EVERY):
        log = first_events(whole, count)
        with Engine.recover(log, sim()) as engine:
            serve(engine, wanted())
        assert outputs_in(log) == expected, count
        report = audit.verify(log)
        assert report.ok, (count, report.findings[:3])
        assert log.reader().runs()[0].outcome == "drained", count


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_that_breaks_off_again_and_again_ends_the_same(scene):
    log = whole_run(scene)
    expected = outputs_in(log)
    for count in (40, 90, 130, 170):  # the first three break off while much is replayed
        log = first_events(log, count)
        with Engine.recover(log, sim()) as engine:
            serve(engine, wanted())
        report = audit.verify(log)
        assert report.ok, (count, report.findings[:3])
        assert outputs_in(log) == expected
