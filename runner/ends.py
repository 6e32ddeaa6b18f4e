"""What stands before and after the loops: embedding tokens, and reading out their states.

For most models both are one product each. A model with layers there keeps K and V of its own, once
per token, in the boundary plane; it runs them here. Nothing about loops lives in this file.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from rlt_fsm.batch import Row

from . import inputs
from .attention import AttentionBackend
from .kv_cache import KVCache, Span
from .models.huginn import HuginnModel
from .models.initial_states import initial_states
from .models.ouro import OuroModel
from .models.parts import Attend

_Call = Callable[[slice, Tensor, Attend], Tensor]  # which positions, their numbers, attention


class Ends(Protocol):
    """The operations at both ends of the loops; `rows` cover the positions of a call, in order."""

    def embed(self, rows: Sequence[Row], tokens: Tensor) -> Tensor:
        """Hidden states [N, state size] of tokens [N] before their first loop."""

    def settle(self, rows: Sequence[Row], hidden: Tensor) -> None:
        """Positions of a prompt have left their loops; later tokens may read them from now on."""

    def logits(self, rows: Sequence[Row], hidden: Tensor) -> Tensor:
        """Logits [N, vocab] of states that have left their loops."""


class PlainEnds:
    """A model that embeds by looking up, and reads out by one product."""

    def __init__(self, model: OuroModel, *, one_row_per_call: bool) -> None:
        self._model = model
        self._one_row_per_call = one_row_per_call

    def embed(self, rows: Sequence[Row], tokens: Tensor) -> Tensor:  # noqa: ARG002 (the protocol's)
        """See Ends."""
        return self._model.prelude(tokens)

    def settle(self, rows: Sequence[Row], hidden: Tensor) -> None:
        """Nothing: only the loops' own layers are read later."""

    def logits(self, rows: Sequence[Row], hidden: Tensor) -> Tensor:  # noqa: ARG002 (the protocol's)
        """See Ends."""
        if not self._one_row_per_call:
            return self._model.coda(hidden)
        return torch.cat([self._model.coda(hidden[i : i + 1]) for i in range(hidden.shape[0])])


class LayeredEnds:
    """A model whose prelude and coda have layers, and whose loops start from a seeded draw."""

    def __init__(
        self,
        model: HuginnModel,
        cache: KVCache,
        attention: AttentionBackend,
        *,
        one_row_per_call: bool,
    ) -> None:
        self._model = model
        self._attention = attention
        self._one_row_per_call = one_row_per_call
        self._device = cache.device
        self._prelude_depth = cache.geometry.prelude_depth
        self._coda_depth = cache.geometry.coda_depth

    def embed(self, rows: Sequence[Row], tokens: Tensor) -> Tensor:
        """See Ends. A token starts from the draw of its request's seed and its position."""
        spans = _spans(rows, self._prelude_depth)
        places = [position for span in spans for position in range(span.start, span.end)]
        seeds = [_seed(row) for row in rows for _ in range(row.token_count)]
        starts = initial_states(seeds, places, self._model.config.n_embd).to(self._device)

        def prelude(own: slice, positions: Tensor, attend: Attend) -> Tensor:
            return self._model.prelude(tokens[own], starts[own], positions, attend)

        return self._through(spans, prelude)

    def settle(self, rows: Sequence[Row], hidden: Tensor) -> None:
        """See Ends. The coda of the prompt's last position computes that position again, alike."""
        self._settled(rows, hidden)

    def logits(self, rows: Sequence[Row], hidden: Tensor) -> Tensor:
        """See Ends."""
        settled = self._settled(rows, hidden)
        if not self._one_row_per_call:
            return self._model.logits(settled)
        return torch.cat([self._model.logits(settled[i : i + 1]) for i in range(len(rows))])

    def _settled(self, rows: Sequence[Row], hidden: Tensor) -> Tensor:
        def settle(own: slice, positions: Tensor, attend: Attend) -> Tensor:
            return self._model.settle(hidden[own], positions, attend)

        return self._through(_spans(rows, self._coda_depth), settle)

    def _through(self, spans: list[Span], call: _Call) -> Tensor:
        """`call` on all positions, or on each alone where results must not depend on the others."""
        parts = list(inputs.split_spans(spans)) if self._one_row_per_call else []
        if not parts:
            positions = inputs.positions_of(spans, self._device)
            return call(slice(None), positions, self._attention.prepare(spans))
        return torch.cat(
            [
                call(
                    slice(i, i + 1),
                    inputs.positions_of([span], self._device),
                    self._attention.prepare([span]),
                )
                for i, span in enumerate(parts)
            ]
        )


def _spans(rows: Sequence[Row], depth: int) -> list[Span]:
    return [
        Span(
            inputs.owner_of(row),
            row.block_table,
            depth,
            row.token_start,
            row.token_start + row.token_count,
            row.state_row,
        )
        for row in rows
    ]


def _seed(row: Row) -> int:
    seed = row.spec.params.seed
    assert seed is not None, "the engine resolves a seed of None before a request is run"
    return seed
