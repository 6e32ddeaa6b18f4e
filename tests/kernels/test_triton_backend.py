"""The kernels' backend against the torch backend: same spans, same pool, same answers."""

import pytest
import torch
from kernels.paged import DEVICE, ON_GPU, assert_close, random

from runner.attention import TorchAttention
from runner.kernels import compiled
from runner.kernels.backend import TritonAttention, split_rows
from runner.kv_cache import KVCache, KVGeometry, Span

LAYERS, DEPTHS, PAGES, BLOCK = 2, 3, 6, 16


def both_backends(*, kv_heads, dim, dtype, planes=DEPTHS, batch_invariant=False):
    geometry = KVGeometry(LAYERS, kv_heads, dim, BLOCK, DEPTHS, planes, dtype)
    caches = [KVCache(geometry, 4 * planes * PAGES, DEVICE) for _ in range(2)]
    return (
        TorchAttention(caches[0]),
        TritonAttention(caches[1], compiled, batch_invariant=batch_invariant),
        caches,
    )


def span(name, depth, start, end, *, planes=DEPTHS):
    row = "abcd".index(name)
    first = row * planes * PAGES
    table = tuple(tuple(range(first + p * PAGES, first + (p + 1) * PAGES)) for p in range(planes))
    return Span((name, 1), table, depth, start, end, row)


# The interpreter takes milliseconds per program: few rows, few heads.
CALLS = [
    [("a", 0, 0, 18), ("b", 0, 0, 1), ("c", 0, 0, 3)],
    [("b", 0, 1, 2), ("a", 0, 18, 19), ("c", 0, 3, 5), ("a", 1, 0, 1), ("d", 0, 0, 1)],
]
FEW_CALLS = [[("a", 0, 0, 3), ("b", 0, 0, 1)], [("a", 0, 3, 4), ("b", 0, 1, 2)]]


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "dtype"),
    [(1, 1, 64, torch.float32), (2, 1, 128, torch.bfloat16)],
)
def test_prompts_and_decode_rows_in_one_call_read_what_the_torch_backend_reads(
    heads, kv_heads, dim, dtype, batch_invariant
):
    torch_backend, triton_backend, caches = both_backends(
        kv_heads=kv_heads, dim=dim, dtype=dtype, batch_invariant=batch_invariant
    )
    for call in FEW_CALLS if batch_invariant and not ON_GPU else CALLS:
        spans = [span(*arguments) for arguments in call]
        count = sum(own.end - own.start for own in spans)
        expected_of, got_of = torch_backend.prepare(spans), triton_backend.prepare(spans)
        for layer in range(LAYERS):
            q, k, v = (
                random(count, own_heads, dim, dtype=dtype)
                for own_heads in (heads, kv_heads, kv_heads)
            )
            expected, got = expected_of(layer, q, k, v), got_of(layer, q.clone(), k, v)
            assert_close(got, expected, dtype)
    assert torch.equal(caches[0].keys, caches[1].keys)
    assert torch.equal(caches[0].values, caches[1].values)


def test_batch_invariant_chunks_give_the_very_bits_of_one_position_at_a_time():
    def run(chunks):
        torch.manual_seed(5)
        q, k, v = (torch.randn(count, 1, 64).to(DEVICE) for _ in range(3))
        _, backend, _ = both_backends(kv_heads=1, dim=64, dtype=torch.float32, batch_invariant=True)
        made = []
        for start, end in chunks:
            attend = backend.prepare([span("a", 0, start, end)])
            part = slice(start, end)
            made.append(attend(0, q[part].clone(), k[part], v[part]))
        return torch.cat(made)

    count = 90 if ON_GPU else 6
    singles = [(i, i + 1) for i in range(count - 4, count)]
    assert torch.equal(run([(0, count)]), run([(0, count - 4), *singles]))


def test_a_table_that_grows_or_changes_hands_is_sent_again():
    torch_backend, triton_backend, _ = both_backends(kv_heads=1, dim=32, dtype=torch.float32)
    long = span("a", 0, 0, 5)
    short = long._replace(table=tuple(blocks[:1] for blocks in long.table))
    other = span("b", 0, 0, 9)._replace(state_row=0)
    for own in (short, long._replace(start=5, end=20), other):
        q, k, v = (random(own.end - own.start, 1, 32) for _ in range(3))
        expected = torch_backend.prepare([own])(0, q, k, v)
        assert_close(triton_backend.prepare([own])(0, q.clone(), k, v), expected, torch.float32)


def test_long_spans_become_tiles_and_single_positions_runs_of_decode_rows():
    spans = [span("a", 0, 0, 1), span("b", 0, 4, 5), span("c", 0, 0, 70), span("d", 0, 2, 3)]
    assert split_rows(spans) == ([(0, 2), (72, 73)], [(2, 64), (66, 6)])
    assert split_rows(spans, every_row_decodes=True) == ([(0, 73)], [])
