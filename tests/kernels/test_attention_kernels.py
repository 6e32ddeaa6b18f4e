"""Paged attention on the kernels against fp64, over heads, dtypes, pages and lengths."""

import pytest
import torch
from kernels.paged import DTYPES, ON_GPU, Pool, assert_close, poisoned, random, tiles_of

from runner.kernels import twins
from runner.kernels.decode_attention import decode_and_write, decode_attention
from runner.kernels.kv_write import write_kv
from runner.kernels.launch_shapes import choose_splits
from runner.kernels.prefill_attention import prefill_attention

# heads, kv_heads, head_dim, block_size, dtype
SHAPES = [
    (2, 2, 64, 8, torch.float32),
    (2, 2, 96, 16, torch.bfloat16),
    (1, 1, 128, 128, torch.bfloat16),
    (4, 2, 64, 16, torch.float32),
    (3, 1, 96, 32, torch.float16),
    (4, 1, 128, 64, torch.bfloat16),
    (2, 1, 8, 4, torch.float32),
]
if ON_GPU:
    SHAPES += [
        (heads, kv_heads, head_dim, block_size, dtype)
        for heads, kv_heads in ((16, 16), (32, 8))
        for head_dim in (64, 96, 128)
        for block_size in (8, 16, 32, 64, 128)
        for dtype in DTYPES
    ]


def double(*tensors):
    return [tensor.double() for tensor in tensors]


def pool_of(shape, *, slots=3, planes=2, tokens=150):
    _, kv_heads, head_dim, block_size, dtype = shape
    return Pool(
        slots=slots,
        planes=planes,
        pages=-(-tokens // block_size),
        kv_heads=kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=dtype,
    )


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_of_any_request_depth_and_length_read_their_own_pages(shape, splits):
    heads, _, head_dim, _, dtype = shape
    pool = pool_of(shape)
    addresses = [(0, 0, 0), (2, 1, 149), (-1, 0, 0), (0, 1, 33), (2, 0, 63)]
    for slot, plane, position in addresses:
        if slot >= 0:
            pool.fill(slot, plane, position + 1)
    rows = pool.rows(addresses)
    # Rows of a wider matrix, as q lies beside k and v.
    q = random(len(addresses), heads + 2, head_dim, dtype=dtype)[:, :heads]
    out = poisoned(len(addresses), heads, head_dim, dtype=dtype)
    decode_attention(q, *pool.layers(), rows, out, splits=splits)
    expected = poisoned(*out.shape, dtype=torch.float64)
    twins.decode_attention(*double(q, *pool.layers()), rows, expected)
    assert_close(out, expected, dtype)
    assert (out[2] == 0).all()


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] == shape[1]], ids=str)
def test_writing_and_attending_in_one_launch_is_both_in_turn(shape, splits):
    heads, _, head_dim, _, dtype = shape
    pool = pool_of(shape)
    addresses = [(0, 0, 0), (2, 1, 149), (-1, 0, 0), (0, 1, 32), (2, 0, 63)]
    for slot, plane, position in addresses:
        if slot >= 0 and position:
            pool.fill(slot, plane, position)
    rows = pool.rows(addresses)
    q, k, v = random(len(addresses), 3 * heads, head_dim, dtype=dtype).split(heads, dim=1)
    angles = random(150, head_dim // 2)
    rotation = (angles.cos().to(dtype), angles.sin().to(dtype))
    layers = [layer.double() for layer in pool.layers()]
    out = poisoned(len(addresses), heads, head_dim, dtype=dtype)
    decode_and_write(q, k, v, *pool.layers(), rows, rotation, out, splits=splits)
    expected = poisoned(*out.shape, dtype=torch.float64)
    turns = double(*rotation)
    twins.decode_and_write(*double(q, k, v), *layers, rows, turns, expected)
    assert_close(out, expected, dtype)
    assert (out[2] == 0).all()
    for got, wanted in zip(pool.layers(), layers, strict=True):
        written = torch.isfinite(wanted)
        assert torch.equal(torch.isfinite(got), written)
        assert_close(got[written], wanted[written], dtype)


def test_a_rows_result_does_not_depend_on_its_batch_mates():
    shape = (2, 2, 64, 16, torch.float32)
    pool = pool_of(shape)
    addresses = [(0, 0, 100), (1, 0, 7), (2, 1, 149)]
    for slot, plane, position in addresses:
        pool.fill(slot, plane, position + 1)
    q = random(3, 2, 64)
    together = poisoned(3, 2, 64, dtype=torch.float32)
    decode_attention(q, *pool.layers(), pool.rows(addresses), together, splits=4)
    for row in range(3):
        alone = poisoned(1, 2, 64, dtype=torch.float32)
        one = slice(row, row + 1)
        decode_attention(q[one], *pool.layers(), pool.rows(addresses[one]), alone, splits=4)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prompt_chunks_of_several_requests_attend_causally_behind_their_history(shape):
    heads, _, head_dim, _, dtype = shape
    pool = pool_of(shape)
    chunks = [(0, 1, 0, 1), (2, 0, 31, 70), (1, 1, 0, 5)]  # slot, plane, start, count
    addresses, runs = [], []
    for slot, plane, start, count in chunks:
        pool.fill(slot, plane, start + count)
        runs.append((len(addresses), count))
        addresses += [(slot, plane, position) for position in range(start, start + count)]
    rows, tiles = pool.rows(addresses), tiles_of([*runs, (0, 0)])
    q = random(len(addresses), heads + 1, head_dim, dtype=dtype)[:, :heads]
    out = poisoned(len(addresses), heads, head_dim, dtype=dtype)
    prefill_attention(q, *pool.layers(), rows, tiles, out)
    expected = poisoned(*out.shape, dtype=torch.float64)
    twins.prefill_attention(*double(q, *pool.layers()), rows, tiles, expected)
    assert_close(out, expected, dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_k_and_v_are_stored_where_the_rows_lie_and_nowhere_else(shape):
    heads, kv_heads, head_dim, _, dtype = shape
    pool, same = pool_of(shape), None
    addresses = [(0, 0, 0), (2, 1, 149), (-1, 0, 0), (1, 1, 9), (1, 1, 10)]
    rows = pool.rows(addresses)
    both = random(len(addresses), heads + 2 * kv_heads, head_dim, dtype=dtype)
    q, k, v = both.split([heads, kv_heads, kv_heads], dim=1)
    before, same = q.clone(), [pool.keys.clone(), pool.values.clone()]
    angles = random(150, head_dim // 2)
    rotation = (angles.cos().to(dtype), angles.sin().to(dtype))
    for turn in (None, rotation):
        write_kv(q, k, v, *pool.layers(), rows, turn)
        expected_q = before.double()
        layers = [tensor[:, pool.layer].double() for tensor in same]
        twins.write_kv(expected_q, *double(k, v), *layers, rows, turn)
        assert_close(q, expected_q, dtype)
        for got, expected in zip(pool.layers(), layers, strict=True):
            written = torch.isfinite(expected)
            assert torch.equal(torch.isfinite(got), written)
            assert_close(got[written], expected[written], dtype)
    assert torch.isnan(pool.keys[:, 0]).all()


def test_small_batches_are_split_and_large_ones_are_not():
    assert [choose_splits(rows, 16, 132) for rows in (1, 4, 8, 16, 32, 1024)] == [
        *(16, 8, 4, 2, 1, 1)
    ]
