"""Norms, SiLU, the exit gate and the exit fill, row by row against fp64."""

import inspect

import pytest
import torch
from kernels.paged import DEVICE, DTYPES, ON_GPU, Pool, assert_close, ints, poisoned, random

from runner.kernels import compiled, twins
from runner.kernels.embedding import embed_tokens
from runner.kernels.exit_fill import fill_exits
from runner.kernels.exit_routing import route_exits
from runner.kernels.norms import add_norms, gather_norm, silu_mul

SIZES = [32, 96, 2048] + ([5280] if ON_GPU else [])
EPS = 1e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_states_are_gathered_and_normed_and_padding_is_zero(size, dtype):
    states, weight = random(5, size, dtype=dtype), random(size, dtype=dtype)
    slots = ints([3, -1, 0])
    x, y = poisoned(3, size, dtype=dtype), poisoned(3, size, dtype=dtype)
    gather_norm(states, slots, x, y, weight, EPS)
    expected_x, expected_y = x.double(), y.double()
    twins.gather_norm(states.double(), slots, expected_x, expected_y, weight.double(), EPS)
    assert torch.equal(x.double(), expected_x)
    assert_close(y, expected_y, dtype)
    assert (y[1] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_both_norms_of_a_residual_are_one_pass(size, dtype):
    x, delta = random(3, size, dtype=dtype), random(3, size, dtype=dtype, scale=30)
    first, second = random(size, dtype=dtype), random(size, dtype=dtype)
    y = poisoned(3, size, dtype=dtype)
    expected_x, expected_y = x.double(), y.double()
    twins.add_norms(expected_x, delta.double(), expected_y, first.double(), second.double(), EPS)
    add_norms(x, delta, y, first, second, EPS)
    assert_close(x, expected_x, dtype)
    assert_close(y, expected_y, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_of_a_delta_are_added_before_its_norm(dtype):
    x, parts = random(3, 96, dtype=dtype), random(4, 3, 96)
    first, second = random(96, dtype=dtype), random(96, dtype=dtype)
    y = poisoned(3, 96, dtype=dtype)
    expected_x, expected_y = x.double(), y.double()
    wide = (parts.double(), expected_y, first.double(), second.double())
    twins.add_norms(expected_x, *wide, EPS)
    add_norms(x, parts, y, first, second, EPS)
    assert_close(x, expected_x, dtype)
    assert_close(y, expected_y, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [64, 1500])
def test_silu_times_up(size, dtype):
    both, out = random(3, 2 * size, dtype=dtype, scale=4), poisoned(3, size, dtype=dtype)
    silu_mul(both, out)
    expected = torch.empty(3, size, dtype=torch.float64, device=DEVICE)
    twins.silu_mul(both.double(), expected)
    assert_close(out, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gate_folds_survival_and_says_who_may_leave(dtype):
    size, rows = 96, 6
    y, weight = random(rows, size, dtype=dtype), random(size, dtype=dtype, scale=0.1)
    bias = random(1, dtype=dtype)
    slots = ints([4, 0, -1, 2, 5, 6])
    thresholds = torch.tensor([0.0, 1.0, 0.0, 0.5, 0.3, 0.7], device=DEVICE)
    survival = torch.rand(7, device=DEVICE)
    states = poisoned(7, size, dtype=dtype)
    made = []
    for run in (route_exits, twins.route_exits):
        own, kept = survival.clone(), states.clone()
        logits = poisoned(rows, dtype=torch.float32)
        exits = ints([9] * rows, torch.int8)
        run(y, weight, bias, slots, thresholds, kept, own, logits, exits)
        made.append((logits, own, exits, kept))
    (logits, own, exits, kept), (logits_2, own_2, exits_2, _) = made
    assert_close(logits, logits_2, torch.float32)
    assert_close(own, own_2, torch.float32)
    assert exits.tolist() == exits_2.tolist()
    assert exits.tolist()[:3] == [1, 0, 0]
    assert torch.equal(kept[[4, 0, 2, 5, 6]], y[[0, 1, 3, 4, 5]])
    assert torch.isnan(kept[[1, 3]]).all()
    assert own[[1, 3]].tolist() == survival[[1, 3]].tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [32, 96])
def test_tokens_told_or_last_sampled_become_their_slots_states(size, dtype):
    weight, states = random(11, size, dtype=dtype), poisoned(6, size, dtype=dtype)
    survival, by_slot = torch.zeros(6, device=DEVICE), ints([0, 1, 2, 3, 10, 5], torch.int64)
    embed_tokens(ints([7, -1, 3, 0]), by_slot, ints([5, 4, -1, 0]), weight, states, survival)
    assert torch.equal(states[[5, 4, 0]], weight[[7, 10, 0]])
    assert torch.isnan(states[1:4]).all()
    assert survival.tolist() == [1, 0, 0, 0, 1, 1]


def test_every_kernel_has_a_twin_of_the_same_signature():
    assert compiled.__all__ == twins.__all__
    for name in compiled.__all__:
        kernel, twin = getattr(compiled, name), getattr(twins, name)
        assert inspect.signature(kernel) == inspect.signature(twin), name


@pytest.mark.parametrize("block_size", [8, 128])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_exited_tokens_kv_fills_the_deeper_planes_of_every_layer_only(dtype, block_size):
    pool = Pool(
        slots=3, planes=4, pages=2, kv_heads=2, head_dim=96, block_size=block_size, dtype=dtype,
        layers=3,
    )  # fmt: skip
    addresses = [(0, 0, 3), (1, 0, block_size), (-1, 0, 0), (2, 0, 0), (2, 0, 2 * block_size - 1)]
    loops = ints([1, 2, 1, 4, 3])
    for tensor in (pool.keys, pool.values):
        tensor.copy_(random(*tensor.shape, dtype=dtype))
    expected = [pool.keys.clone(), pool.values.clone()]
    rows = pool.rows(addresses)
    fill_exits(pool.keys, pool.values, rows, loops)
    twins.fill_exits(*expected, rows, loops)
    assert torch.equal(pool.keys, expected[0])
    assert torch.equal(pool.values, expected[1])
    page = pool.tables[0, :, 0].long()
    assert torch.equal(pool.keys[page[3], :, 3], pool.keys[page[0], :, 3])
