"""The kernels again in plain torch: their reference, and what a CPU runs. Same names, same effects.

Written for reading, not for speed; loops over rows are Python's.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runner.draws import uniform

from .launch_shapes import SkinnyShape
from .paging import PagedRows, Tiles
from .sampling_rows import SamplingRows

__all__ = [
    "add_norms", "decode_and_write", "decode_attention", "embed_tokens", "fill_exits",
    "gather_norm", "prefill_attention", "route_exits", "sample_tokens", "silu_mul", "skinny_linear",
    "skinny_silu", "write_kv",
]  # fmt: skip


# ---- attention -------------------------------------------------------------------------------


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, out: Tensor, *, splits: int = 1
) -> None:
    """See `decode_attention.decode_attention`; `splits` changes nothing here."""
    del splits
    for row, (slot, plane, position) in enumerate(_addresses(rows)):
        if slot < 0:
            out[row] = 0
            continue
        past = [_history(pool, rows, slot, plane, position + 1) for pool in (keys, values)]
        out[row] = _attend(q[row][None], *past)[0]


def decode_and_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    rotation: tuple[Tensor, Tensor],
    out: Tensor,
    *,
    splits: int = 1,
) -> None:
    """See `decode_attention.decode_and_write`."""
    turned = q.clone()
    write_kv(turned, k, v, keys, values, rows, rotation)
    decode_attention(turned, keys, values, rows, out, splits=splits)


def prefill_attention(
    q: Tensor, keys: Tensor, values: Tensor, rows: PagedRows, tiles: Tiles, out: Tensor
) -> None:
    """See `prefill_attention.prefill_attention`."""
    addresses = _addresses(rows)
    for first, count in zip(tiles.firsts.tolist(), tiles.counts.tolist(), strict=True):
        if count:
            slot, plane, position = addresses[first]
            past = [_history(pool, rows, slot, plane, position + count) for pool in (keys, values)]
            out[first : first + count] = _attend(q[first : first + count], *past)


def write_kv(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> None:
    """See `kv_write.write_kv`."""
    block_size = keys.shape[1]
    for row, (slot, plane, position) in enumerate(_addresses(rows)):
        if slot < 0:
            continue
        key = k[row]
        if rotation is not None:
            cos, sin = (angles[position].float() for angles in rotation)
            q[row] = _rotate(q[row], cos, sin)
            key = _rotate(key, cos, sin)
        block = int(rows.tables[slot, plane, position // block_size])
        keys[block, position % block_size] = key
        values[block, position % block_size] = v[row]


def _addresses(rows: PagedRows) -> list[tuple[int, int, int]]:
    columns = (rows.slots.tolist(), rows.planes.tolist(), rows.positions.tolist())
    return list(zip(*columns, strict=True))


def _history(pool: Tensor, rows: PagedRows, slot: int, plane: int, length: int) -> Tensor:
    """Positions [0, length) of one layer's pool, [length, kv_heads, head_dim]."""
    pages = rows.tables[slot, plane, : -(-length // pool.shape[1])].long()
    return pool[pages].flatten(0, 1)[:length]


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last q.shape[0] positions, causally; softmax in fp32."""
    count, heads, _ = q.shape
    length = keys.shape[0]
    own = torch.arange(length - count, length, device=q.device)
    visible = torch.arange(length, device=q.device) <= own[:, None]
    attended = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=visible,
        enable_gqa=keys.shape[1] != heads,
    )
    return attended[0].transpose(0, 1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def fill_exits(keys: Tensor, values: Tensor, rows: PagedRows, loops: Tensor) -> None:
    """See `exit_fill.fill_exits`."""
    block_size, planes = keys.shape[2], rows.tables.shape[1]
    columns = (rows.slots.tolist(), loops.tolist(), rows.positions.tolist())
    for slot, loop, position in zip(*columns, strict=True):
        if slot < 0 or loop >= planes:
            continue
        blocks = rows.tables[slot, :, position // block_size].tolist()
        at = position % block_size
        for pool in (keys, values):
            pool[blocks[loop:], :, at] = pool[blocks[loop - 1], :, at].clone()


# ---- rows of states --------------------------------------------------------------------------


def embed_tokens(
    tokens: Tensor, by_slot: Tensor, slots: Tensor, weight: Tensor, states: Tensor, survival: Tensor
) -> None:
    """See `embedding.embed_tokens`."""
    real = slots >= 0
    at = slots[real].long()
    told = tokens[real].long()
    states[at] = weight[torch.where(told < 0, by_slot[at], told)]
    survival[at] = 1.0


def gather_norm(
    states: Tensor, slots: Tensor, x: Tensor, y: Tensor, weight: Tensor, eps: float
) -> None:
    """See `norms.gather_norm`."""
    x[:] = states[slots.long().clamp_min(0)].masked_fill((slots < 0)[:, None], 0)
    y[:] = _norm(x, weight, eps)


def add_norms(
    x: Tensor, delta: Tensor, y: Tensor, weight_delta: Tensor, weight_next: Tensor, eps: float
) -> None:
    """See `norms.add_norms`."""
    if delta.dim() == 3:
        delta = delta.sum(dim=0).to(x.dtype)
    x += _norm(delta, weight_delta, eps)
    y[:] = _norm(x, weight_next, eps)


def silu_mul(both: Tensor, out: Tensor) -> None:
    """See `norms.silu_mul`."""
    gate, up = both.chunk(2, dim=-1)
    out[:] = functional.silu(gate) * up


def skinny_linear(x: Tensor, weight: Tensor, out: Tensor, shape: SkinnyShape) -> None:
    """See `skinny.skinny_linear`."""
    if out.dim() == 2:
        out[:] = functional.linear(x, weight)
        return
    size = x.shape[1] // shape.parts
    for part in range(shape.parts):
        own = slice(part * size, (part + 1) * size)
        out[part] = functional.linear(x[:, own].to(out.dtype), weight[:, own].to(out.dtype))


def skinny_silu(x: Tensor, weight: Tensor, out: Tensor, shape: SkinnyShape) -> None:
    """See `skinny.skinny_silu`."""
    del shape
    silu_mul(functional.linear(x, weight), out)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype)


def route_exits(
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    slots: Tensor,
    thresholds: Tensor,
    states: Tensor,
    survival: Tensor,
    logits: Tensor,
    exits: Tensor,
) -> None:
    """See `exit_routing.route_exits`."""
    real = slots >= 0
    at = slots[real].long()
    logits.zero_()
    exits.zero_()
    # A sum in fp32 rather than a matmul: the same for a row alone and in any batch.
    logits[real] = (y[real].float() * weight.float()).sum(dim=-1) + bias.float()
    states[at] = y[real]
    after = survival[at] * (1.0 - torch.sigmoid(logits[real]))
    survival[at] = after
    asked = thresholds[real]
    exits[real] = ((1.0 - after >= asked) & (asked < 1)).to(exits.dtype)


# ---- sampling --------------------------------------------------------------------------------


def sample_tokens(
    logits: Tensor, rows: SamplingRows, tokens: Tensor, logprobs: Tensor, by_slot: Tensor
) -> None:
    """See `sampling.sample_tokens`."""
    raw = logits.float()
    tokens[:] = raw.argmax(dim=-1)
    columns = [column.tolist() for column in rows]
    for i, asked in enumerate(zip(*columns, strict=True)):
        slot, temperature, top_p, top_k, seed, index = asked
        if slot < 0:
            tokens[i] = 0
            continue
        if temperature > 0:
            tokens[i] = _pick(raw[i], temperature, top_k, top_p, uniform(seed, index))
        by_slot[slot] = tokens[i]
    logprobs[:] = torch.log_softmax(raw, dim=-1).gather(1, tokens[:, None])[:, 0]
    logprobs.masked_fill_(rows.slots < 0, 0.0)


def _pick(raw: Tensor, temperature: float, top_k: int, top_p: float, draw: float) -> Tensor:
    """One row: the rule of `runner.sampler`, filters over a stable sort."""
    vocabulary = raw.shape[0]
    ordered, token_of = raw, torch.arange(vocabulary, device=raw.device)
    is_filtered = top_p < 1 or 0 < top_k < vocabulary
    if is_filtered:
        ordered, token_of = raw.sort(descending=True, stable=True)
    weights = ((ordered.double() - ordered.double().amax()) / temperature).exp()
    if is_filtered:
        if 0 < top_k < vocabulary:
            weights = weights.masked_fill(ordered < ordered[top_k - 1], 0.0)
        mass = weights.cumsum(dim=0)
        preceding = torch.cat((mass.new_zeros(1), mass[:-1]))
        weights = weights.masked_fill(preceding > top_p * mass[-1], 0.0)
    mass = weights.cumsum(dim=0)
    place = int((mass <= draw * mass[-1]).sum())
    return token_of[min(place, int(weights.nonzero()[-1]))]
