"""The paged pool: addresses, exit copies, what counts as written, and refusals before changes."""

import pytest
import torch

from runner.kv_cache import Exited, KVCache, KVCacheError, KVGeometry, Span

A, B = ("a", 1), ("b", 1)


def pool(*, planes=3, block_size=2, num_blocks=12, layers=2):
    geometry = KVGeometry(
        layers=layers,
        kv_heads=1,
        head_dim=2,
        block_size=block_size,
        depths=3,
        planes=planes,
        dtype=torch.float32,
    )
    return KVCache(geometry, num_blocks, torch.device("cpu"))


TABLE = ((0, 1), (2, 3), (4, 5))  # two pages of two positions in each of three planes


def write(cache, span, value):
    """Write every layer of a span: keys are value + layer, values the same negated."""
    slots = cache.prepare([span])
    for layer in range(cache.geometry.layers):
        rows = torch.full((span.end - span.start, 1, 2), float(value + layer))
        cache.write(layer, slots, rows, -rows)


def stored(cache, table, plane, position, layer=0):
    size = cache.geometry.block_size
    block, offset = table[plane][position // size], position % size
    assert torch.equal(cache.keys[block, layer, offset], -cache.values[block, layer, offset])
    return cache.keys[block, layer, offset, 0, 0].item()


def fill(cache, owner=A, table=TABLE, depths=(0, 1, 2), tokens=2):
    for depth in depths:
        write(cache, Span(owner, table, depth, 0, tokens), 10 * (depth + 1))


def unchanged_by(cache, refused):
    """`refused` raises and leaves pool and records as they were."""
    before = cache.keys.clone(), cache.values.clone()
    frontiers = [cache.frontier(owner, depth) for owner in (A, B) for depth in range(3)]
    with pytest.raises(KVCacheError) as caught:
        refused()
    assert torch.equal(cache.keys, before[0])
    assert torch.equal(cache.values, before[1])
    assert [cache.frontier(o, d) for o in (A, B) for d in range(3)] == frontiers
    return str(caught.value)


def test_a_position_lies_in_the_page_and_plane_of_its_depth():
    cache = pool()
    fill(cache, tokens=3)
    assert [stored(cache, TABLE, plane, 2) for plane in range(3)] == [10, 20, 30]
    assert stored(cache, TABLE, 1, 2, layer=1) == 21
    assert cache.keys[1, 0, 0, 0, 0] == 10  # position 2: second page of plane 0, first offset
    assert cache.keys[1, 0, 1, 0, 0] == 0


def test_bytes_per_block_counts_keys_and_values_of_all_layers():
    # Ouro-1.4B in bf16: 196,608 bytes per token and depth, 3 MiB per block of 16
    geometry = KVGeometry(24, 16, 128, 16, 4, 4, torch.bfloat16)
    assert geometry.bytes_per_block == 16 * 196_608 == 3 * 2**20
    assert geometry.blocks_for(17) == 8


def test_an_exit_shows_its_plane_to_all_deeper_ones_and_leaves_the_shallower_alone():
    cache = pool()
    fill(cache, depths=(0, 1), tokens=1)
    write(cache, Span(A, TABLE, 2, 0, 1), 30)
    write(cache, Span(A, TABLE, 0, 1, 2), 11)
    write(cache, Span(A, TABLE, 1, 1, 2), 21)
    cache.fill_exit(A, TABLE, 1, exit_depth=2)
    for layer in (0, 1):
        planes = [stored(cache, TABLE, plane, 1, layer) for plane in range(3)]
        assert planes == [11 + layer, 21 + layer, 21 + layer]
    assert [stored(cache, TABLE, plane, 0) for plane in range(3)] == [10, 20, 30]


def test_exit_copies_are_independent_of_their_source():
    cache = pool()
    fill(cache, depths=(0,), tokens=1)
    cache.fill_exit(A, TABLE, 0, exit_depth=1)
    write(cache, Span(A, TABLE, 0, 0, 1), 77)
    assert [stored(cache, TABLE, plane, 0) for plane in range(3)] == [77, 10, 10]


def test_tokens_of_several_requests_fill_their_exits_in_one_call():
    other = ((6, 7), (8, 9), (10, 11))
    cache = pool()
    fill(cache, depths=(0, 1), tokens=1)
    fill(cache, owner=B, table=other, depths=(0,), tokens=1)
    cache.fill_exits([Exited(A, TABLE, 0, 2), Exited(B, other, 0, 1)])
    assert [stored(cache, TABLE, plane, 0) for plane in range(3)] == [10, 20, 20]
    assert [stored(cache, other, plane, 0) for plane in range(3)] == [10, 10, 10]


def test_a_shared_plane_has_one_version_and_nothing_to_fill():
    cache, table = pool(planes=1), ((0, 1),)
    fill(cache, table=table, tokens=1)
    before = cache.keys.clone()
    cache.fill_exit(A, table, 0, exit_depth=1)
    assert stored(cache, table, 0, 0) == 30
    assert torch.equal(cache.keys, before)


def test_a_token_at_full_depth_has_nothing_to_fill():
    cache = pool()
    fill(cache, tokens=1)
    before = cache.keys.clone()
    cache.fill_exit(A, TABLE, 0, exit_depth=3)
    assert torch.equal(cache.keys, before)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(A, TABLE, 0, 4, 5), "outside capacity 4"),
        (Span(A, TABLE, 0, 3, 5), "positions [3, 5) outside capacity 4"),
        (Span(A, TABLE, 0, -1, 1), "outside capacity"),
        (Span(A, TABLE, 0, 1, 1), "outside capacity"),
        (Span(A, TABLE, 3, 0, 1), "depth 3 outside [0, 3)"),
        (Span(A, TABLE, -1, 0, 1), "depth -1 outside"),
        (Span(A, ((0, 1), (2,), (4, 5)), 0, 0, 1), "unequal length"),
        (Span(A, TABLE[:2], 0, 0, 1), "2 planes in the table, not 3"),
        (Span(A, ((0, 12), (2, 3), (4, 5)), 0, 0, 1), "outside [0, 12)"),
        (Span(A, TABLE, 0, 1, 2), "only 0 positions are written"),
    ],
)
def test_a_span_that_cannot_be_served_is_refused_and_changes_nothing(span, words):
    cache = pool()
    good = Span(B, ((6, 7), (8, 9), (10, 11)), 0, 0, 1)
    message = unchanged_by(cache, lambda: cache.prepare([good, span]))
    assert words in message


def test_two_rows_that_write_one_address_are_refused():
    cache = pool()
    one, same = Span(A, TABLE, 0, 0, 2), Span(B, TABLE, 0, 0, 1)
    assert "same address" in unchanged_by(cache, lambda: cache.prepare([one, same]))


def test_keys_for_another_number_of_rows_are_refused():
    cache = pool()
    slots = cache.prepare([Span(A, TABLE, 0, 0, 2)])
    three = torch.ones(3, 1, 2)
    assert "3 rows for 2 addresses" in unchanged_by(
        cache, lambda: cache.write(0, slots, three, three)
    )


@pytest.mark.parametrize(
    ("position", "exit_depth", "words"),
    [(0, 0, "outside [1, 3]"), (0, 4, "outside [1, 3]"), (2, 1, "never ran"), (0, 2, "never ran")],
)
def test_an_exit_that_never_ran_is_refused(position, exit_depth, words):
    cache = pool()
    fill(cache, depths=(0,), tokens=2)
    assert words in unchanged_by(
        cache, lambda: cache.fill_exit(A, TABLE, position, exit_depth=exit_depth)
    )


def test_an_exit_beyond_a_gap_stays_hidden_until_the_gap_closes():
    """A replay: position 1 leaves after one loop before position 0 has done its second."""
    cache = pool()
    fill(cache, depths=(0,), tokens=3)
    cache.fill_exit(A, TABLE, 1, exit_depth=1)
    assert [stored(cache, TABLE, plane, 1) for plane in range(3)] == [10, 10, 10]
    assert cache.frontier(A, 1) == 0
    late = Span(A, TABLE, 1, 2, 3)
    assert "only 0 positions" in unchanged_by(cache, lambda: cache.prepare([late]))
    cache.prepare([Span(A, TABLE, 1, 0, 1), late])
    assert [cache.frontier(A, depth) for depth in range(3)] == [3, 3, 0]


def test_a_reused_page_does_not_expose_what_its_last_owner_wrote():
    cache = pool()
    fill(cache, tokens=2)
    cache.forget(A)
    assert "uninitialised history" in unchanged_by(
        cache, lambda: cache.prepare([Span(B, TABLE, 0, 1, 2)])
    )


def test_a_write_beyond_a_gap_is_refused_so_only_a_contiguous_prefix_exists():
    cache = pool()
    write(cache, Span(A, TABLE, 0, 0, 1), 10)
    assert "only 1 positions" in unchanged_by(
        cache, lambda: cache.prepare([Span(A, TABLE, 0, 2, 3)])
    )
    write(cache, Span(A, TABLE, 0, 1, 3), 10)
    assert cache.frontier(A, 0) == 3
    assert cache.frontier(A, 1) == 0


def test_spans_of_one_request_may_follow_each_other_in_one_call():
    cache = pool()
    cache.prepare([Span(A, TABLE, 0, 0, 1), Span(A, TABLE, 0, 1, 3)])
    assert cache.frontier(A, 0) == 3


def test_offloaded_pages_come_back_in_other_blocks_with_what_was_written():
    cache = pool()
    fill(cache, depths=(0, 1), tokens=3)
    pages = cache.offload(A, TABLE)
    assert not cache.knows(A)
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("nan"))
    moved = ((11, 9), (7, 5), (3, 1))
    cache.reload(A, moved, pages)
    for position in range(3):
        assert [stored(cache, moved, plane, position) for plane in (0, 1)] == [10, 20]
    assert [cache.frontier(A, depth) for depth in range(3)] == [3, 3, 0]


def test_pages_do_not_come_back_into_a_table_of_another_length():
    cache = pool()
    fill(cache, tokens=1)
    pages = cache.offload(A, TABLE)
    message = unchanged_by(cache, lambda: cache.reload(A, ((6,), (7,), (8,)), pages))
    assert "2 pages per plane were offloaded, 1 blocks are given" in message


def test_pages_that_others_wrote_count_as_written_once_a_request_begins_behind_them():
    cache = pool()
    fill(cache, tokens=2)
    behind = Span(B, TABLE, 2, 2, 3)
    assert "only 0 positions" in unchanged_by(cache, lambda: cache.prepare([behind]))
    cache.begin(B, cached=2)
    cache.prepare([behind])
    assert cache.frontier(B, 2) == 3


def test_decode_rows_advance_their_own_plane_or_nothing():
    cache = pool()
    fill(cache, tokens=1)
    for depth in (0, 1):
        cache.advance([A], [TABLE], [depth], [1])
    assert [cache.frontier(A, depth) for depth in range(3)] == [2, 2, 1]
    other = ((6, 7), (8, 9), (10, 11))
    for depth, position, message in (
        (2, 2, "only 1 positions are written"),
        (0, 4, "no page for position 4"),
    ):
        late = ([B, A], [other, TABLE], [0, depth], [0, position])
        assert message in unchanged_by(cache, lambda late=late: cache.advance(*late))


def test_exits_that_never_ran_are_not_counted():
    cache = pool()
    fill(cache, depths=(0,), tokens=1)
    good = Exited(A, TABLE, 0, 1)
    for wrong, message in (
        (Exited(A, TABLE, 1, 1), "position 1 never ran at depth 0"),
        (Exited(A, TABLE, 0, 2), "position 0 never ran at depth 1"),
        (Exited(A, TABLE, 0, 4), "exit depth 4 outside [1, 3]"),
    ):
        assert message in unchanged_by(cache, lambda w=wrong: cache.count_exits([good, w]))


def test_exits_are_counted_without_a_copy_where_a_kernel_copies():
    cache = pool()
    fill(cache, depths=(0,), tokens=1)
    before = cache.keys.clone()
    cache.count_exits([Exited(A, TABLE, 0, 1)])
    assert [cache.frontier(A, depth) for depth in range(3)] == [1, 1, 1]
    assert torch.equal(cache.keys, before)


def test_a_table_is_checked_in_every_plane():
    cache = pool()
    cache.check_table(A, TABLE)
    for wrong, message in (
        (TABLE[:2], "2 planes in the table"),
        (((0, 1), (2, 3), (4, 99)), "outside [0, 12)"),
    ):
        assert message in unchanged_by(cache, lambda wrong=wrong: cache.check_table(A, wrong))
