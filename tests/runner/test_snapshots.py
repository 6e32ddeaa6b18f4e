"""Snapshot and restore at every boundary between two pieces of work."""

import pytest
import torch
from driving import Driver, completions, small_config, tiny_model

from rlt_fsm.states import WorkKey

LAYOUTS = ["last_exited", "shared"]
PARAMS = {
    "max_tokens": 4,
    "min_loops": 1,
    "exit_depths": (4, 3, 1, 2),
    "temperature": 0.8,
    "seed": 5,
}


def move(driver, live):
    """Park a request, spoil everything it had, and bring it back elsewhere."""
    on = driver.runner._started
    driver.runner.snapshot(live.spec, live.state_row, live.block_table)
    on.cache.forget((live.spec.request_id, live.spec.generation))
    for plane in live.block_table:
        on.cache.keys[list(plane)] = float("nan")
        on.cache.values[list(plane)] = float("nan")
    on.hidden[live.state_row] = float("nan")
    on.gate.load(live.state_row, float("nan"))
    live.state_row = driver.free_rows.pop(0)
    live.block_table = driver.take_blocks(len(live.block_table[0]) * 2)
    driver.runner.restore(live.spec, live.state_row, live.block_table)


def batches(driver, live, *, moved_before=None):
    """Run to the end, one batch at a time; move the request before batch `moved_before`."""
    works = []
    while not live.is_finished:
        if moved_before == len(works):
            move(driver, live)
        works.append(live.work)
        driver.run([live])
    return works


def fresh(layout, **params):
    driver = Driver(tiny_model(seed=6), small_config(layout=layout, block_size=2), chunk=2)
    return driver, driver.add("a", [5, 6, 7, 8, 9], **{**PARAMS, **params})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "params", [{}, {"exit_depths": None, "exit_threshold": 0.7}], ids=["trace", "gate"]
)
def test_a_request_moved_at_any_work_boundary_continues_as_if_never_moved(layout, params):
    driver, live = fresh(layout, **params)
    works = batches(driver, live)
    assert {*works} == {
        WorkKey.PROMPT_ATOMIC,
        WorkKey.DECODE_CODA,
        WorkKey.DECODE_PRELUDE,
        WorkKey.DECODE_RECURRENT,
    }
    for boundary in range(len(works)):
        driver, moved = fresh(layout, **params)
        assert batches(driver, moved, moved_before=boundary) == works
        assert completions([moved]) == completions([live])


def test_a_yielded_request_keeps_its_pages_and_moves_its_state_row_only():
    driver, live = fresh("last_exited")
    reference_driver, reference = fresh("last_exited")
    reference_driver.packed([reference])
    for _ in range(6):
        driver.run([live])
    driver.runner.snapshot(live.spec, live.state_row, ())
    driver.runner._started.hidden[live.state_row] = float("nan")
    live.state_row = driver.free_rows.pop(0)
    driver.runner.restore(live.spec, live.state_row, live.block_table)
    driver.packed([live])
    assert completions([live]) == completions([reference])


def test_a_yielded_request_may_be_offloaded_after_its_state_row_has_a_new_owner():
    driver, live = fresh("last_exited")
    reference_driver, reference = fresh("last_exited")
    reference_driver.packed([reference])
    for _ in range(6):
        driver.run([live])
    driver.runner.snapshot(live.spec, live.state_row, ())
    driver.runner._started.hidden[live.state_row] = float("nan")
    driver.runner.snapshot(live.spec, -1, live.block_table)
    live.state_row = driver.free_rows.pop(0)
    live.block_table = driver.take_blocks(len(live.block_table[0]) * 2)
    driver.runner.restore(live.spec, live.state_row, live.block_table)
    driver.packed([live])
    assert completions([live]) == completions([reference])


def test_a_snapshot_is_independent_of_what_happens_on_the_device():
    driver, live = fresh("last_exited")
    driver.run([live])
    driver.runner.snapshot(live.spec, live.state_row, live.block_table)
    kept = driver.runner._started.hidden[live.state_row].clone()
    driver.runner._started.hidden.zero_()
    driver.runner._started.cache.keys.zero_()
    driver.runner.restore(live.spec, live.state_row, live.block_table)
    assert torch.equal(driver.runner._started.hidden[live.state_row], kept)
    assert driver.runner._started.cache.keys.abs().sum() > 0


def test_release_drops_the_snapshot_of_a_request_that_ended_while_parked():
    driver, live = fresh("last_exited")
    driver.run([live])
    driver.runner.snapshot(live.spec, live.state_row, live.block_table)
    driver.runner.release(live.spec, -1)
    with pytest.raises(KeyError):
        driver.runner.restore(live.spec, live.state_row, live.block_table)
