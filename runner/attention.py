"""Attention over the paged pool: the choice of a backend, and the one in plain torch.

A backend turns the spans of one model call into an `attend` that every layer of that call uses: it
stores K and V, then reads positions 0..p of the plane that the row's depth names. Kernels written
for one device belong in `kernels/`, behind the same protocol.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rlt_fsm.config import AttentionBackend as BackendName
from rlt_fsm.errors import ConfigError
from rlt_fsm.oplog import logger

from .kernels.backend import TritonAttention
from .kv_cache import KVCache, Slots, Span
from .models.parts import Attend

# Pages of one group are gathered into one tensor; larger groups are split to bound its size.
MAX_GATHERED_BYTES: Final = 256 * 2**20


class AttentionBackend(Protocol):
    """Attention for model calls over one pool."""

    def prepare(self, spans: Sequence[Span]) -> Attend:
        """Check `spans`, count them as written, and return their `attend`.

        Rows of the model call are the positions of the spans, in order.
        """


def resolve_backend(name: BackendName, device: torch.device) -> BackendName:
    """What `name` is on a device; `auto` takes the kernels on CUDA.

    Raises:
        ConfigError: the backend does not run here; there is no silent second choice.
    """
    is_cuda = device.type == "cuda"
    has_triton = find_spec("triton") is not None
    if name == "auto" and is_cuda and not has_triton:
        logger().warning("slow attention", reason="triton is not installed: rlt-fsm[gpu]")
    if name == "torch" or (name == "auto" and not (is_cuda and has_triton)):
        return "torch"
    if not is_cuda:
        raise ConfigError(
            "execution.attention_backend='triton' needs a CUDA device, this runner is on "
            f"{device.type!r}: set it to 'auto' or 'torch'"
        )
    if not has_triton:
        raise ConfigError(
            "execution.attention_backend='triton' needs the package triton, which is not "
            "installed: install rlt-fsm[gpu], or set it to 'auto' or 'torch'"
        )
    return "triton"


def create_backend(
    name: BackendName, cache: KVCache, *, batch_invariant: bool = False
) -> AttentionBackend:
    """The backend of a resolved name."""
    if name == "torch":
        return TorchAttention(cache)
    compiled = import_module("runner.kernels.compiled")  # not before: triton is optional
    return TritonAttention(cache, compiled, batch_invariant=batch_invariant)


class TorchAttention:
    """Padded, batched gathers of whole pages and torch's own attention (softmax in fp32).

    Spans are grouped by (positions, padded pages), both functions of a span alone, so that the
    shape in which a row is computed does not depend on its batch mates.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def prepare(self, spans: Sequence[Span]) -> Attend:
        """See AttentionBackend."""
        slots = self._cache.prepare(spans)
        return _TorchCall(self._cache, slots, self._groups(spans))

    def _groups(self, spans: Sequence[Span]) -> list["_Group"]:
        size = self._cache.geometry.block_size
        members: dict[tuple[int, int], list[tuple[int, Span]]] = {}
        row = 0
        for span in spans:
            pages = padded_pages(-(-span.end // size))
            members.setdefault((span.end - span.start, pages), []).append((row, span))
            row += span.end - span.start
        groups: list[_Group] = []
        for (count, pages), group in members.items():
            most = self._most_spans(pages)
            groups.extend(
                self._group(group[first : first + most], count, pages)
                for first in range(0, len(group), most)
            )
        return groups

    def _most_spans(self, pages: int) -> int:
        geometry = self._cache.geometry
        bytes_per_span = pages * geometry.bytes_per_block // (2 * geometry.layers)
        return max(1, MAX_GATHERED_BYTES // bytes_per_span)

    def _group(self, members: Sequence[tuple[int, Span]], count: int, pages: int) -> "_Group":
        cache = self._cache
        table = np.zeros((len(members), pages), dtype=np.int64)
        for i, (_, span) in enumerate(members):
            used = -(-span.end // cache.geometry.block_size)
            table[i, :used] = span.table[cache.plane(span.depth)][:used]
        first_rows = np.array([row for row, _ in members])
        starts = np.array([span.start for _, span in members])
        steps = np.arange(count)
        columns = np.arange(pages * cache.geometry.block_size)
        last_visible = starts[:, None] + steps  # own position included
        visible = columns <= last_visible[:, :, None]
        unwritten = columns >= (starts + count)[:, None]

        def put(array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
            return torch.from_numpy(array).to(cache.device)

        rows = (first_rows[:, None] + steps).reshape(-1)
        return _Group(
            put(rows), put(table), put(visible[:, None]), put(unwritten[:, :, None, None])
        )


class _Group(NamedTuple):
    """Spans of one shape: `spans` of them, `count` positions each, `length` padded columns."""

    rows: Tensor  # [spans * count], row numbers of the model call
    table: Tensor  # [spans, pages]
    visible: Tensor  # [spans, 1, count, length]
    unwritten: Tensor  # [spans, length, 1, 1]


class _TorchCall:
    """`attend` for the layers of one model call."""

    def __init__(self, cache: KVCache, slots: Slots, groups: Sequence[_Group]) -> None:
        self._cache = cache
        self._slots = slots
        self._groups = groups

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._cache.write(layer, self._slots, k, v)
        result = torch.empty_like(q)
        for group in self._groups:
            result[group.rows] = self._attend(layer, group, q[group.rows])
        return result

    def _attend(self, layer: int, group: _Group, q: Tensor) -> Tensor:
        spans, heads, head_dim = group.table.shape[0], q.shape[1], q.shape[2]
        keys = _gather(self._cache.keys[:, layer], group)
        values = _gather(self._cache.values[:, layer], group)
        attended = functional.scaled_dot_product_attention(
            q.view(spans, -1, heads, head_dim).transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=group.visible,
            enable_gqa=keys.shape[2] != heads,
        )
        return attended.transpose(1, 2).reshape(-1, heads, head_dim)


def _gather(pool: Tensor, group: _Group) -> Tensor:
    """Pages of one layer as [spans, length, kv_heads, head_dim], zero where nothing was written.

    A weight of zero does not hide what an earlier owner left in a page: 0 x NaN is NaN.
    """
    pages = pool[group.table]
    return pages.flatten(1, 2).masked_fill_(group.unwritten, 0)


def padded_pages(pages: int) -> int:
    """Pages rounded up to two steps per power of two, four at least: 4, 8, 12, 16, 24, 32 …."""
    step = max(4, 1 << max(0, (pages - 1).bit_length() - 2))
    return -(-pages // step) * step
