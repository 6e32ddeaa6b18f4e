"""With `check`, SimRunner refuses what a real KV cache could not serve."""

import pytest

from rlt_fsm import Batch, EngineConfig, Operation, RequestSpec, Row, SamplingParams, WorkKey
from rlt_fsm.config import CacheConfig
from runner.sim import SimRunner

A = RequestSpec("a", 1, (1, 2, 3), SamplingParams(max_tokens=4))
B = RequestSpec("b", 1, (4, 5), SamplingParams(max_tokens=4))
TABLE = ((0, 1, 2), (3, 4, 5))  # two planes of three blocks of two tokens
OTHER = ((6, 7, 8), (9, 10, 11))


@pytest.fixture
def sim():
    runner = SimRunner(depths=2)
    runner.start(EngineConfig(cache=CacheConfig(num_blocks=12, block_size=2)))
    return runner


def row(spec, work, start, count=1, *, depth=None, idx=0, token=-1, state_row=0, table=TABLE):
    loops = 0 if depth is None else depth
    return Row(spec, work, start, count, depth, False, idx, loops, 2, token, state_row, table)


def submit(sim, *rows):
    works = tuple(sorted({r.work for r in rows}))
    sim.submit(Batch(0, 0, Operation.RECURRENT, works, rows, "test"))
    return sim.collect()[0]


def prompt(spec=A, start=0, count=None, **place):
    count = len(spec.prompt_token_ids) - start if count is None else count
    return row(spec, WorkKey.PROMPT_ATOMIC, start, count, **place)


def prefilled(sim):
    """`a` up to its first token, which is returned."""
    submit(sim, prompt())
    return submit(sim, row(A, WorkKey.DECODE_CODA, 2)).token_ids[0]


def test_a_whole_request_passes(sim):
    token = prefilled(sim)
    submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token))
    for depth in range(2):
        submit(sim, row(A, WorkKey.DECODE_RECURRENT, 3, idx=1, depth=depth))
    submit(sim, row(A, WorkKey.DECODE_CODA, 3, idx=1))
    sim.release(A)


def test_a_chunk_that_leaves_a_gap_is_refused(sim):
    submit(sim, prompt(count=1))
    with pytest.raises(AssertionError, match="at position 2, 1 are written"):
        submit(sim, prompt(start=2))


def test_a_chunk_that_is_computed_twice_is_refused(sim):
    submit(sim, prompt(count=2))
    with pytest.raises(AssertionError, match="at position 1, 2 are written"):
        submit(sim, prompt(start=1))


def test_a_prelude_of_another_token_than_was_sampled_is_refused(sim):
    token = prefilled(sim)
    with pytest.raises(AssertionError, match="was sampled"):
        submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token + 1))


def test_a_loop_out_of_order_is_refused(sim):
    token = prefilled(sim)
    submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token))
    with pytest.raises(AssertionError, match="loop 1 where 0 was due"):
        submit(sim, row(A, WorkKey.DECODE_RECURRENT, 3, idx=1, depth=1))


def test_a_loop_without_its_prelude_is_refused(sim):
    prefilled(sim)
    with pytest.raises(AssertionError, match="a loop without its prelude"):
        submit(sim, row(A, WorkKey.DECODE_RECURRENT, 3, idx=1, depth=0))


def test_a_coda_before_any_loop_is_refused(sim):
    token = prefilled(sim)
    submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token))
    with pytest.raises(AssertionError, match="a coda before any loop"):
        submit(sim, row(A, WorkKey.DECODE_CODA, 3, idx=1))


def test_a_position_without_a_block_is_refused(sim):
    with pytest.raises(AssertionError, match="position 2 has no block"):
        submit(sim, prompt(table=((0,), (3,))))


def test_a_block_of_two_requests_is_refused(sim):
    submit(sim, prompt())
    with pytest.raises(AssertionError, match=r"block 2 .* is also in the table of"):
        submit(sim, prompt(B, state_row=1, table=((2,), (6,))))


def test_a_block_that_was_exchanged_is_refused(sim):
    submit(sim, prompt(count=1))
    with pytest.raises(AssertionError, match="blocks of plane 0 were exchanged"):
        submit(sim, prompt(start=1, table=OTHER))


def test_a_table_with_a_plane_too_few_is_refused(sim):
    with pytest.raises(AssertionError, match="1 planes, not 2"):
        submit(sim, prompt(table=((0, 1),)))


def test_a_state_row_of_two_requests_is_refused(sim):
    submit(sim, prompt())
    with pytest.raises(AssertionError, match="b#1 gets state row 0 of a#1"):
        submit(sim, prompt(B, table=OTHER))


def test_a_request_in_two_state_rows_is_refused(sim):
    submit(sim, prompt(count=1))
    with pytest.raises(AssertionError, match="a#1 of state row 0 runs in state row 1"):
        submit(sim, prompt(start=1, state_row=1))


def test_a_released_request_gives_its_blocks_and_row_back(sim):
    submit(sim, prompt())
    sim.release(A)
    submit(sim, prompt(B))


def test_a_request_may_be_released_by_a_rewind_and_again_before_it_runs_once_more(sim):
    sim.release(A)  # admitted, never in a batch
    sim.release(A)
    assert sim.requests_held == 0


def test_a_rewound_request_begins_anew(sim):
    prefilled(sim)
    sim.release(A)
    prefilled(sim)
    sim.release(A)


def test_a_parked_request_keeps_its_blocks_and_runs_on_in_another_row(sim):
    token = prefilled(sim)
    sim.park(A, 0)
    submit(sim, prompt(B, table=OTHER))
    sim.unpark(A, 1)
    submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token, state_row=1))


def test_an_offloaded_request_gives_its_blocks_and_comes_back_elsewhere(sim):
    token = prefilled(sim)
    sim.park(A, 0)
    sim.offload(A, TABLE)
    submit(sim, prompt(B))
    sim.reload(A, OTHER)
    sim.unpark(A, 1)
    place = {"state_row": 1, "table": OTHER}
    submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token, **place))


def test_a_parked_request_does_not_run(sim):
    prefilled(sim)
    sim.park(A, 0)
    with pytest.raises(AssertionError, match="a#1 runs while it is parked"):
        submit(sim, row(A, WorkKey.DECODE_CODA, 2))


def test_a_request_on_the_host_does_not_run(sim):
    token = prefilled(sim)
    sim.offload(A, TABLE)
    with pytest.raises(AssertionError, match="while its KV is on the host"):
        submit(sim, row(A, WorkKey.DECODE_PRELUDE, 3, idx=1, token=token))
    with pytest.raises(AssertionError, match="offloaded twice"):
        sim.offload(A, TABLE)


def test_a_request_that_was_never_in_a_batch_may_be_parked_and_offloaded(sim):
    sim.park(A, 0)
    sim.offload(A, TABLE)
    sim.reload(A, TABLE)
    sim.unpark(A, 0)
    prefilled(sim)


def test_a_second_park_is_refused(sim):
    prefilled(sim)
    sim.park(A, 0)
    with pytest.raises(AssertionError, match="runs while it is parked"):
        sim.park(A, 0)


def test_an_unpark_or_reload_without_its_pair_is_refused(sim):
    with pytest.raises(AssertionError, match="unparked without having been parked"):
        sim.unpark(A, 0)
    with pytest.raises(AssertionError, match="reloaded without having been offloaded"):
        sim.reload(A, TABLE)
    prefilled(sim)
    with pytest.raises(AssertionError, match="unparked without having been parked"):
        sim.unpark(A, 1)
    with pytest.raises(AssertionError, match="reloaded without having been offloaded"):
        sim.reload(A, TABLE)


def test_an_unpark_into_a_row_in_use_is_refused(sim):
    submit(sim, prompt())
    sim.park(A, 0)
    submit(sim, prompt(B, table=OTHER))
    with pytest.raises(AssertionError, match="a#1 gets state row 0 of b#1"):
        sim.unpark(A, 0)


def test_a_reload_into_fewer_pages_is_refused(sim):
    submit(sim, prompt())
    sim.offload(A, TABLE)
    with pytest.raises(AssertionError, match="3 pages come back into 1"):
        sim.reload(A, ((0,), (1,)))


def test_collecting_nothing_is_refused(sim):
    with pytest.raises(AssertionError, match="nothing in flight"):
        sim.collect()


def test_without_check_nothing_is_refused():
    runner = SimRunner(depths=2, check=False)
    runner.start(EngineConfig(cache=CacheConfig(num_blocks=12, block_size=2)))
    submit(runner, prompt(start=2))
    runner.release(A)
    runner.release(A)


# ---- prefix cache ------------------------------------------------------------------------------

LIKE_A = RequestSpec("like-a", 1, (1, 2, 9), SamplingParams(max_tokens=4))
SHARED = ((0, 6, 7), (3, 8, 9))  # the first page of TABLE, then its own


@pytest.fixture
def caching():
    runner = SimRunner(depths=2)
    cache = CacheConfig(num_blocks=12, block_size=2, enable_prefix_caching=True)
    runner.start(EngineConfig(cache=cache))
    return runner


def test_a_cached_prefix_is_read_by_several_and_outlives_its_writer(caching):
    submit(caching, prompt())
    submit(caching, prompt(LIKE_A, start=2, state_row=1, table=SHARED))
    caching.release(A)
    caching.release(LIKE_A)
    submit(caching, prompt(LIKE_A, start=2, state_row=1, table=SHARED))


def test_a_prefix_that_nobody_wrote_is_refused(caching):
    with pytest.raises(AssertionError, match="block 0 does not hold page 0 of its prompt"):
        submit(caching, prompt(LIKE_A, start=2, table=SHARED))


def test_a_prefix_of_other_tokens_is_refused(caching):
    submit(caching, prompt())
    other = RequestSpec("other", 1, (1, 7, 9), SamplingParams(max_tokens=4))
    with pytest.raises(AssertionError, match="does not hold page 0"):
        submit(caching, prompt(other, start=2, state_row=1, table=SHARED))


def test_a_prefix_whose_block_was_taken_since_is_refused(caching):
    submit(caching, prompt())
    caching.release(A)
    submit(caching, prompt(B, table=((0, 1), (4, 5))))
    with pytest.raises(AssertionError, match="block 0 does not hold page 0"):
        submit(caching, prompt(LIKE_A, start=2, state_row=1, table=SHARED))


def test_a_block_that_is_still_read_is_not_taken(caching):
    submit(caching, prompt())
    submit(caching, prompt(LIKE_A, start=2, state_row=1, table=SHARED))
    caching.release(A)
    with pytest.raises(AssertionError, match="takes block 0 that is still read"):
        submit(caching, prompt(B, table=((0, 1), (4, 5))))


def test_part_of_a_page_is_never_cached(caching):
    submit(caching, prompt())
    with pytest.raises(AssertionError, match="part of a page is cached"):
        submit(caching, prompt(LIKE_A, start=1, state_row=1, table=SHARED))
