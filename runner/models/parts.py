"""What networks of all architectures are made of, and what those who run them may count on."""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attend(Protocol):
    """Attention as its caller stores it: keep k and v of `layer`, return what q reads."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend causally, own position included, scaled by 1/sqrt(head_dim).

        Shapes: q [N, heads, head_dim], k and v [N, kv_heads, head_dim]; returns the shape of q.
        q and k are already rotated.
        """


class LoopedModel(Protocol):
    """A network as its loops see it; what stands before and after them differs too much."""

    def recurrent(self, hidden: Tensor, positions: Tensor, attend: Attend) -> tuple[Tensor, Tensor]:
        """One loop: states [N, state size] and positions [N] → the same states one loop later, and
        the gate logit [N], fp32.
        """


class RMSNorm(nn.Module):
    """Scale to unit root mean square in fp32, cast back, then multiply by the weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Shape in and out: [..., size]; the dtype is kept."""
        scaled = functional.rms_norm(x.float(), (x.shape[-1],), eps=self.eps)
        return self.weight * scaled.to(x.dtype)
