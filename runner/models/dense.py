"""A whole sequence through all its loops at once: no pages, no chunks, no batches, no engine.

The plain forward that serving is held against. Slow and memory-hungry for long sequences, on
purpose: every line is one of the model's own.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .architectures import Network
from .initial_states import initial_states
from .ouro import OuroModel


class _Kept:
    """Causal attention over one sequence; tokens that have left the loop show their last K and V.

    `running` [T] says which tokens run the loop at hand; None: all of them.
    """

    def __init__(self) -> None:
        self.running: Tensor | None = None
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.running is not None and layer in self._kept:
            rows = self.running[:, None, None]
            old_k, old_v = self._kept[layer]
            k, v = torch.where(rows, k, old_k), torch.where(rows, v, old_v)
        self._kept[layer] = (k, v)
        read = functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            is_causal=True,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return read[0].transpose(0, 1)


def sequence_logits(
    model: Network, tokens: Sequence[int], depths: Sequence[int], seed: int = 0
) -> Tensor:
    """Logits [T, vocab] of a sequence whose token i runs the first `depths[i]` loops.

    As the KV layout `last_exited` serves it: deeper loops of later tokens read a token's last K, V.
    `seed` decides initial states where the model has them.
    """
    device = next(model.parameters()).device
    ids, loops = (torch.tensor(list(values), device=device) for values in (tokens, depths))
    positions = torch.arange(len(tokens), device=device)
    attend = _Kept()
    if isinstance(model, OuroModel):
        hidden = model.prelude(ids)
    else:
        seeds, places = [seed] * len(tokens), range(len(tokens))
        starts = initial_states(seeds, places, model.config.n_embd).to(device)
        hidden = model.prelude(ids, starts, positions, _Kept())
    for depth in range(int(loops.max())):
        attend.running = loops > depth
        states, _ = model.recurrent(hidden, positions, attend)
        hidden = torch.where(attend.running[:, None], states, hidden)
    if isinstance(model, OuroModel):
        return model.coda(hidden)
    return model.logits(model.settle(hidden, positions, _Kept()))
