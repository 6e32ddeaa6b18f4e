"""Park, offload, reload and unpark at every boundary between two pieces of work."""

import pytest
import torch
from driving import Driver, completions, small_config, tiny_model

from rlt_fsm.states import WorkKey
from runner.kv_cache import KVCacheError

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
    driver.runner.park(live.spec, live.state_row)
    driver.runner.offload(live.spec, live.block_table)
    for plane in live.block_table:
        on.cache.keys[list(plane)] = float("nan")
        on.cache.values[list(plane)] = float("nan")
    on.resident.hidden[live.state_row] = float("nan")
    on.resident.gate.load(live.state_row, float("nan"))
    live.state_row = driver.free_rows.pop(0)
    live.block_table = driver.take_blocks(len(live.block_table[0]) * 2)
    driver.runner.unpark(live.spec, live.state_row)
    driver.runner.reload(live.spec, live.block_table)


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


def after_six_batches():
    """A request in its decode, and what it would have become undisturbed."""
    reference_driver, reference = fresh("last_exited")
    reference_driver.packed([reference])
    driver, live = fresh("last_exited")
    for _ in range(6):
        driver.run([live])
    return driver, live, completions([reference])


def test_a_yielded_request_keeps_its_pages_and_moves_its_state_row_only():
    driver, live, expected = after_six_batches()
    driver.runner.park(live.spec, live.state_row)
    driver.runner._started.resident.hidden[live.state_row] = float("nan")
    live.state_row = driver.free_rows.pop(0)
    driver.runner.unpark(live.spec, live.state_row)
    driver.packed([live])
    assert completions([live]) == expected


def test_a_yielded_request_may_be_offloaded_while_another_owns_its_old_row():
    driver, live, expected = after_six_batches()
    driver.runner.park(live.spec, live.state_row)
    driver.runner._started.resident.hidden[live.state_row] = float("nan")
    driver.runner.offload(live.spec, live.block_table)
    live.state_row = driver.free_rows.pop(0)
    live.block_table = driver.take_blocks(len(live.block_table[0]) * 2)
    driver.runner.unpark(live.spec, live.state_row)
    driver.runner.reload(live.spec, live.block_table)
    driver.packed([live])
    assert completions([live]) == expected


def test_parked_states_are_independent_of_what_happens_on_the_device():
    driver, live = fresh("last_exited")
    driver.run([live])
    driver.runner.park(live.spec, live.state_row)
    hidden = driver.runner._started.resident.hidden
    kept = hidden[live.state_row].clone()
    hidden.zero_()
    driver.runner.unpark(live.spec, live.state_row)
    assert torch.equal(hidden[live.state_row], kept)
    assert hidden.abs().sum() > 0


def test_an_offloaded_request_cannot_run_before_it_is_reloaded():
    driver, live, _ = after_six_batches()
    driver.runner.offload(live.spec, live.block_table)
    with pytest.raises(KVCacheError):
        driver.packed([live])


def test_release_drops_what_a_request_had_on_the_host():
    driver, live, _ = after_six_batches()
    driver.runner.park(live.spec, live.state_row)
    driver.runner.offload(live.spec, live.block_table)
    driver.runner.release(live.spec)
    with pytest.raises(KeyError):
        driver.runner.unpark(live.spec, live.state_row)
    with pytest.raises(KeyError):
        driver.runner.reload(live.spec, live.block_table)
