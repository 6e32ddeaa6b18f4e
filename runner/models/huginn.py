"""The Huginn network: layers before, a recurrent core, and layers after, all with attention.

The core starts from a state that its caller draws, and every loop mixes the embedded input in
again; state and input travel together. No cache, no scheduling, no files, no random numbers: the
caller supplies attention and initial states. Parameters carry the checkpoint's names.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from .huginn_config import HuginnConfig
from .parts import Attend, RMSNorm

NEVER: Final = -1e4  # the logit of a gate that there is not: sigmoid of it is 0


def rotation_table(config: HuginnConfig) -> Tensor:
    """Cos and sin of every position's angles, fp32 [1, context, 1, head_dim / 2, 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / torch.pow(config.rope_base, exponents)
    positions = torch.arange(config.block_size, dtype=torch.float32)
    angles = torch.outer(positions, frequencies)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)[None, :, None]


def rotate_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Turn neighbours (2j, 2j + 1) of each head, in fp32: x [N, heads, head_dim], turns
    [N, 1, head_dim / 2, 2].
    """
    first, second = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = turns.unbind(-1)
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """One projection for q, k and v, biases on q and k, and the caller's attention."""

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()
        self.heads, self.head_dim = config.n_heads, config.head_dim
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.qk_bias = nn.Parameter(torch.zeros(2, 1, self.heads, self.head_dim))
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, layer: int, turns: Tensor, attend: Attend) -> Tensor:
        """Shape in and out: [N, n_embd]."""
        q, k, v = self.Wqkv(x).view(x.shape[0], 3, self.heads, self.head_dim).unbind(1)
        q = rotate_pairs(q + self.qk_bias[0], turns)
        k = rotate_pairs(k + self.qk_bias[1], turns)
        return cast("Tensor", self.proj(attend(layer, q, k, v).flatten(1)))


class GatedMLP(nn.Module):
    """proj(silu(a) * b), where fc gives a and b side by side."""

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(config.n_embd, 2 * config.intermediate_size, bias=False)
        self.proj = nn.Linear(config.intermediate_size, config.n_embd, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape in and out: [N, n_embd]."""
        gate, up = self.fc(x).chunk(2, dim=-1)
        return cast("Tensor", self.proj(functional.silu(gate) * up))


class SandwichBlock(nn.Module):
    """One layer whose residual sums are normed too."""

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(config.n_embd, config.norm_eps)
        self.attn = Attention(config)
        self.norm_2 = RMSNorm(config.n_embd, config.norm_eps)
        self.norm_3 = RMSNorm(config.n_embd, config.norm_eps)
        self.mlp = GatedMLP(config)
        self.norm_4 = RMSNorm(config.n_embd, config.norm_eps)

    def forward(self, x: Tensor, layer: int, turns: Tensor, attend: Attend) -> Tensor:
        """Shape in and out: [N, n_embd]."""
        x = self.norm_2(self.attn(self.norm_1(x), layer, turns, attend) + x)
        return cast("Tensor", self.norm_4(self.mlp(self.norm_3(x)) + x))


class Layers(nn.Module):
    """Everything whose checkpoint name starts with `transformer.`."""

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()

        def blocks(count: int) -> nn.ModuleList:
            return nn.ModuleList(SandwichBlock(config) for _ in range(count))

        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.prelude = blocks(config.n_layers_in_prelude)
        self.adapter = nn.Linear(2 * config.n_embd, config.n_embd, bias=False)
        self.core_block = blocks(config.n_layers_in_recurrent_block)
        self.coda = blocks(config.n_layers_in_coda)
        self.ln_f = RMSNorm(config.n_embd, config.norm_eps)


class HuginnModel(nn.Module):
    """The model as its operations; rows are independent but for `attend`.

    A token's hidden row is [2 n_embd]: its state, then its embedded input. Prelude and coda attend
    too: layers count from 0 over the prelude and go on in the coda.
    """

    freqs_cis: Tensor
    # A checkpoint may leave these out; and may hold these, which must equal what they are tied to.
    optional_tensors: ClassVar[frozenset[str]] = frozenset({"freqs_cis"})
    tied_tensors: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"lm_head.weight": "transformer.wte.weight"}
    )

    def __init__(self, config: HuginnConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = Layers(config)
        self.register_buffer("freqs_cis", rotation_table(config))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 (torch's own signature)
        before = self.freqs_cis
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        # Casts and `to_empty` go through here: take the new device, never the new dtype.
        device = self.freqs_cis.device
        if device.type != "meta":
            with torch.device("cpu"):
                exact = rotation_table(self.config) if before.is_meta else before
            self.freqs_cis = exact.to(device)
        return self

    def prelude(
        self, token_ids: Tensor, starts: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """Embed token_ids [N] and join the states from which their loops start.

        `starts` [N, n_embd]: standard normal numbers cut at ±3 → [N, 2 n_embd].
        """
        turns, scale = self._turns(positions), self.config.embed_scale
        x = self.transformer.wte(token_ids) * scale
        for layer, block in enumerate(self.transformer.prelude):
            x = block(x, layer, turns, attend)
        return torch.cat(((starts * (self.config.state_std * scale)).to(x.dtype), x), dim=-1)

    def recurrent(self, hidden: Tensor, positions: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """One loop of hidden [N, 2 n_embd]; the gate logit [N] never lets a token leave."""
        turns = self._turns(positions)
        x = self.transformer.adapter(hidden)
        for layer, block in enumerate(self.transformer.core_block):
            x = block(x, layer, turns, attend)
        embedded = hidden[:, self.config.n_embd :]
        logits = torch.full((hidden.shape[0],), NEVER, dtype=torch.float32, device=hidden.device)
        return torch.cat((x, embedded), dim=-1), logits

    def settle(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The coda's layers, whose K and V later tokens read: hidden → what the head reads."""
        turns, norm = self._turns(positions), self.transformer.ln_f
        x = norm(hidden[:, : self.config.n_embd])
        for layer, block in enumerate(self.transformer.coda, len(self.transformer.prelude)):
            x = block(x, layer, turns, attend)
        return cast("Tensor", norm(x))

    def logits(self, settled: Tensor) -> Tensor:
        """Logits [N, vocab] of what `settle` returned; the head is the embedding."""
        return functional.linear(settled, self.transformer.wte.weight)

    def _turns(self, positions: Tensor) -> Tensor:
        return self.freqs_cis[0, positions]
