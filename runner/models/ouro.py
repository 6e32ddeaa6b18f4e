"""The Ouro network: one shared stack of layers that every token passes several times.

Three operations and the arithmetic between them. No cache, no scheduling, no files: the caller
supplies attention (and with it the KV storage), so the same weights train densely and serve from
pages. Parameters carry the checkpoint's names, so `state_dict` keys are tensor names.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from .ouro_config import OuroConfig
from .parts import Attend, RMSNorm

__all__ = ["Attend", "OuroConfig", "OuroModel", "apply_rope", "rope_frequencies"]


def rope_frequencies(head_dim: int, theta: float) -> Tensor:
    """Rotary angles per position, fp32 [head_dim / 2]: theta^(-2j / head_dim)."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return torch.pow(theta, -exponents)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head: x [N, heads, head_dim], cos and sin [N, head_dim / 2]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Rotary(nn.Module):
    """cos and sin of every position; the frequencies stay fp32 whatever the module is cast to."""

    inv_freq: Tensor

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.theta = theta
        self.register_buffer("inv_freq", rope_frequencies(head_dim, theta), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 (torch's own signature)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        # Casts and `to_empty` go through here: take the new device, never the new dtype.
        device = self.inv_freq.device
        if device.type != "meta":
            with torch.device("cpu"):
                exact = rope_frequencies(self.head_dim, self.theta)
            self.inv_freq = exact.to(device)
        return self

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Angles in fp32 for positions [N]; cos and sin, each [N, head_dim / 2], in `dtype`."""
        angles = positions.float()[:, None] * self.inv_freq[None, :]
        return angles.cos().to(dtype), angles.sin().to(dtype)


class Attention(nn.Module):
    """The four projections around the caller's attention; no biases, no q or k norm."""

    def __init__(self, config: OuroConfig) -> None:
        super().__init__()
        hidden, self.head_dim = config.hidden_size, config.head_dim
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(hidden, q_size, bias=False)
        self.k_proj = nn.Linear(hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, hidden, bias=False)

    def forward(self, x: Tensor, layer: int, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Shape in and out: [N, hidden]."""
        per_head = (x.shape[0], -1, self.head_dim)
        q = apply_rope(self.q_proj(x).view(per_head), cos, sin)
        k = apply_rope(self.k_proj(x).view(per_head), cos, sin)
        v = self.v_proj(x).view(per_head)
        return cast("Tensor", self.o_proj(attend(layer, q, k, v).flatten(1)))


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: OuroConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape in and out: [N, hidden]."""
        return cast("Tensor", self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x)))


class DecoderLayer(nn.Module):
    """One layer with a norm on both sides of attention and of the MLP ("sandwich")."""

    def __init__(self, config: OuroConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(size, eps)
        self.input_layernorm_2 = RMSNorm(size, eps)
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.post_attention_layernorm_2 = RMSNorm(size, eps)

    def forward(self, x: Tensor, layer: int, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Shape in and out: [N, hidden]."""
        attended = self.self_attn(self.input_layernorm(x), layer, cos, sin, attend)
        x = x + self.input_layernorm_2(attended)
        return x + cast(
            "Tensor",
            self.post_attention_layernorm_2(self.mlp(self.post_attention_layernorm(x))),
        )


class LoopedStack(nn.Module):
    """Everything whose checkpoint name starts with `model.`."""

    def __init__(self, config: OuroConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.early_exit_gate = nn.Linear(config.hidden_size, 1)
        self.rotary = Rotary(config.head_dim, config.rope_theta)


class OuroModel(nn.Module):
    """The looped model as its three operations; rows are independent but for `attend`."""

    optional_tensors: ClassVar[frozenset[str]] = frozenset()
    tied_tensors: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, config: OuroConfig) -> None:
        super().__init__()
        self.config = config
        self.model = LoopedStack(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def prelude(self, token_ids: Tensor) -> Tensor:
        """Embed token_ids [N] into [N, hidden]."""
        return cast("Tensor", self.model.embed_tokens(token_ids))

    def recurrent(self, hidden: Tensor, positions: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """One loop: every layer once, then the final norm.

        hidden [N, hidden] and positions [N] (the same in every loop) → the normed hidden state
        [N, hidden], which feeds the next loop, the gate and the coda, and the gate logit [N], fp32.
        """
        cos, sin = self.model.rotary(positions, hidden.dtype)
        for layer, module in enumerate(self.model.layers):
            hidden = module(hidden, layer, cos, sin, attend)
        normed: Tensor = self.model.norm(hidden)
        gate = self.model.early_exit_gate
        # A sum in fp32 rather than a matmul: the same for a row alone and in any batch.
        logit = (normed.float() * gate.weight[0].float()).sum(dim=-1) + gate.bias.float()
        return normed, logit

    def coda(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] of a state [N, hidden] as `recurrent` returned it; no further norm."""
        return cast("Tensor", self.lm_head(hidden))
