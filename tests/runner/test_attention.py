"""Paged attention against the definition: depths, layouts, lengths, and rows that are strangers."""

import pytest
import torch

from rlt_fsm.errors import ConfigError
from runner.attention import create_backend, padded_pages, resolve_backend
from runner.kv_cache import KVCache, KVGeometry, Span

LAYERS, HEADS, KV_HEADS, DIM, DEPTHS = 2, 4, 2, 8, 3


def pool(*, planes=DEPTHS, block_size=2, num_blocks=400, kv_heads=KV_HEADS, dim=DIM):
    geometry = KVGeometry(LAYERS, kv_heads, dim, block_size, DEPTHS, planes, torch.float32)
    return KVCache(geometry, num_blocks, torch.device("cpu"))


def table(first, pages, planes=DEPTHS):
    return tuple(tuple(range(first + p * pages, first + (p + 1) * pages)) for p in range(planes))


def definition(q, keys, values):
    """softmax(q k / sqrt(d)) v, one query [heads, dim] over keys [tokens, kv_heads, dim]."""
    group = q.shape[0] // keys.shape[1]
    out = []
    for head in range(q.shape[0]):
        k, v = keys[:, head // group].double(), values[:, head // group].double()
        weights = torch.softmax(k @ q[head].double() / q.shape[1] ** 0.5, dim=0)
        out.append(weights @ v)
    return torch.stack(out).float()


def random_rows(count, generator):
    return (
        torch.randn(count, HEADS, DIM, generator=generator),
        torch.randn(count, KV_HEADS, DIM, generator=generator),
        torch.randn(count, KV_HEADS, DIM, generator=generator),
    )


def test_rows_of_different_requests_depths_and_lengths_each_read_their_own_history():
    generator = torch.Generator().manual_seed(0)
    cache = pool()
    backend = create_backend("torch", cache)
    lengths = {("a", 1): 3, ("b", 1): 40, ("c", 1): 1}
    tables = {owner: table(60 * 2 * i, 20) for i, owner in enumerate(lengths)}
    history = {}
    for owner, length in lengths.items():
        for depth in range(DEPTHS):
            attend = backend.prepare([Span(owner, tables[owner], depth, 0, length - 1 or 1)])
            for layer in range(LAYERS):
                q, k, v = random_rows(length - 1 or 1, generator)
                attend(layer, q, k, v)
                history[owner, depth, layer] = (k, v)
    rows = [(("b", 1), 2), (("a", 1), 0), (("b", 1), 0), (("a", 1), 2)]
    spans = [Span(o, tables[o], d, lengths[o] - 1, lengths[o]) for o, d in rows]
    attend = backend.prepare(spans)
    for layer in range(LAYERS):
        q, k, v = random_rows(len(rows), generator)
        result = attend(layer, q, k, v)
        for i, (owner, depth) in enumerate(rows):
            past_k, past_v = history[owner, depth, layer]
            keys, values = torch.cat((past_k, k[i : i + 1])), torch.cat((past_v, v[i : i + 1]))
            torch.testing.assert_close(result[i], definition(q[i], keys, values))


def test_a_prompt_chunk_sees_earlier_chunks_and_its_own_past_only():
    generator = torch.Generator().manual_seed(1)
    cache = pool()
    backend = create_backend("torch", cache)
    mine, owner = table(0, 5), ("a", 1)
    q, k, v = random_rows(9, generator)
    got = [
        backend.prepare([Span(owner, mine, 1, start, end)])(
            0, q[start:end], k[start:end], v[start:end]
        )
        for start, end in ((0, 4), (4, 5), (5, 9))
    ]
    for position, row in enumerate(torch.cat(got)):
        expected = definition(q[position], k[: position + 1], v[: position + 1])
        torch.testing.assert_close(row, expected)


@pytest.mark.parametrize(("planes", "first", "second"), [(2, 20.0, 20.0), (1, 22.6894, 20.7314)])
def test_the_worked_example_of_both_layouts(planes, first, second):
    """A has (K, V) (1, 10) and (2, 20) at loops 1 and 2; B follows with q = k."""
    geometry = KVGeometry(1, 1, 1, 4, 2, planes, torch.float32)
    cache = KVCache(geometry, 2, torch.device("cpu"))
    backend = create_backend("torch", cache)
    blocks, owner = tuple((plane,) for plane in range(planes)), ("s", 1)

    def attend(depth, position, q, k, v):
        rows = [torch.tensor([[[float(x)]]]) for x in (q, k, v)]
        call = backend.prepare([Span(owner, blocks, depth, position, position + 1)])
        return call(0, *rows).item()

    attend(0, 0, 1, 1, 10)
    attend(1, 0, 1, 2, 20)
    h = attend(0, 1, 1, 1, 30)
    assert h == pytest.approx(first, abs=1e-4)
    assert attend(1, 1, h / 20, h / 20, h) == pytest.approx(second, abs=5e-3)


def test_tokens_that_left_at_different_depths_show_the_lesser_of_depth_and_exit():
    """Exits at 1, 2, 3 at positions 0, 1, 2, across a page boundary; position 3 then reads."""
    generator = torch.Generator().manual_seed(2)
    cache = pool()
    backend = create_backend("torch", cache)
    mine, owner = table(0, 3), ("a", 1)
    written = {}
    for position, exit_depth in enumerate((1, 2, 3)):
        for depth in range(exit_depth):
            q, k, v = random_rows(1, generator)
            call = backend.prepare([Span(owner, mine, depth, position, position + 1)])
            for layer in range(LAYERS):
                call(layer, q, k, v)
            written[position, depth] = (k, v)
        cache.fill_exit(owner, mine, position, exit_depth)
    for depth in range(DEPTHS):
        q, k, v = random_rows(1, generator)
        seen = [written[p, min(depth, exit_depth - 1)] for p, exit_depth in enumerate((1, 2, 3))]
        keys = torch.cat([*(key for key, _ in seen), k])
        values = torch.cat([*(value for _, value in seen), v])
        got = backend.prepare([Span(owner, mine, depth, 3, 4)])(0, q, k, v)
        torch.testing.assert_close(got[0], definition(q[0], keys, values))


def test_what_an_earlier_owner_left_behind_a_requests_end_cannot_poison_it():
    cache = pool()
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("inf"))
    backend = create_backend("torch", cache)
    q, k, v = random_rows(1, torch.Generator().manual_seed(3))
    got = backend.prepare([Span(("a", 1), table(0, 4), 0, 0, 1)])(0, q, k, v)
    torch.testing.assert_close(got[0], definition(q[0], k, v))


def test_a_gather_that_is_too_large_is_split_without_a_difference(monkeypatch):
    def run():
        generator = torch.Generator().manual_seed(4)
        cache = pool()
        backend = create_backend("torch", cache)
        spans = [Span((str(i), 1), table(12 * i, 4), 0, 0, 3) for i in range(5)]
        return backend.prepare(spans)(0, *random_rows(15, generator))

    whole = run()
    monkeypatch.setattr("runner.attention.MAX_GATHERED_BYTES", 1)
    torch.testing.assert_close(run(), whole, rtol=0, atol=1e-6)


def test_a_rows_padded_length_depends_on_its_own_length_alone():
    assert [padded_pages(n) for n in (1, 4, 5, 9, 13, 17, 33, 49, 65)] == [
        *(4, 4, 8, 12, 16, 24, 48, 64, 96)
    ]


def test_auto_resolves_to_torch_and_triton_is_refused_with_what_to_do():
    assert resolve_backend("auto", torch.device("cpu")) == "torch"
    with pytest.raises(
        ConfigError, match=r"attention_backend='triton' needs a CUDA device.*'auto'"
    ):
        resolve_backend("triton", torch.device("cpu"))
