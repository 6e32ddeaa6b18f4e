"""The looped model in fp64, one token and one loop at a time, and how far fp32 may stray from it.

Nothing is shared with the code under test but the weights, which fp64 holds exactly. `Roundings`
turns a computation into a bound on the error of the same computation in fp32:

Every value that fp32 rounds gets a perturbation of its own, zero, whose gradient is the value's
influence on the quantity asked for. To first order the error of the quantity is the sum over all
roundings of influence x rounding error. Rounding errors are taken as independent, of mean zero and
at most u = 2^-24 of what is rounded, so that (Hoeffding) the sum exceeds
SIGMAS x sqrt(sum of (influence x largest error)^2) with probability 2 exp(-SIGMAS^2 / 2) at most:
2.5e-14 for 8. No order of summation is assumed: a dot product of n terms has n partial sums, each
at most sum |w x|. N. Higham and T. Mary, "A new approach to probabilistic rounding error
analysis", SIAM J. Sci. Comput. 41 (2019).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from runner.models.ouro_config import OuroConfig

UNIT = 2.0**-24
SIGMAS = 8.0


class Exact:
    """Rounds nothing and bounds nothing."""

    def round(self, value: Tensor, size: Callable[[], Tensor]) -> Tensor:
        """A value that fp32 rounds, by `size()` units at most (root of the sum of squares)."""
        del size
        return value


class Roundings(Exact):
    """Remembers every rounding; see above."""

    def __init__(self) -> None:
        self._errors: list[Tensor] = []
        self._sizes: list[Tensor] = []

    def round(self, value: Tensor, size: Callable[[], Tensor]) -> Tensor:
        """See Exact."""
        error = torch.zeros_like(value, requires_grad=True)
        with torch.no_grad():
            self._sizes.append(size().expand_as(value) * UNIT)
        self._errors.append(error)
        return value + error

    def bound(self, quantity: Tensor) -> float:
        """How far fp32 may stray from a scalar computed from rounded values."""
        influences = torch.autograd.grad(
            quantity, self._errors, retain_graph=True, allow_unused=True
        )
        variance = sum(
            float(((influence * size) ** 2).sum())
            for influence, size in zip(influences, self._sizes, strict=True)
            if influence is not None
        )
        return SIGMAS * math.sqrt(variance)


class Output(NamedTuple):
    """What led to one output: 1 - S after each loop that its input ran, and the logits."""

    exited_mass: list[Tensor]
    logits: Tensor


class ExactModel:
    """Runs one request's tokens in order; keys and values in lists by (plane, layer)."""

    def __init__(
        self, weights: Mapping[str, Tensor], config: OuroConfig, layout: str, roundings: Exact
    ) -> None:
        self._weights = {name: tensor.detach().cpu().double() for name, tensor in weights.items()}
        self._config = config
        self._planes = config.total_ut_steps if layout == "last_exited" else 1
        self._round = roundings.round
        self._kv: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {
            (plane, layer): []
            for plane in range(self._planes)
            for layer in range(config.num_hidden_layers)
        }

    def outputs(
        self, prompt: Sequence[int], tokens: Sequence[int], depths: Sequence[int]
    ) -> Iterator[Output]:
        """The outputs of a request that got these tokens at these exit depths."""
        full = self._config.total_ut_steps
        for position, token in enumerate(prompt):
            state, masses = self._token(token, position, full)
        for i, token in enumerate(tokens):
            yield Output(masses, self._dot(self._weights["lm_head.weight"], state))
            if i + 1 < len(tokens):
                state, masses = self._token(token, len(prompt) + i, depths[i + 1])

    def _token(self, token: int, position: int, loops: int) -> tuple[Tensor, list[Tensor]]:
        """All loops of one token: its exit state, and 1 - S after each."""
        x = self._weights["model.embed_tokens.weight"][token]
        survival, masses = torch.ones((), dtype=torch.float64), []
        for loop in range(loops):
            for layer in range(self._config.num_hidden_layers):
                x = self._layer(x, layer, position, loop)
            x = self._norm(x, "model.norm")
            survival = self._survive(survival, x)
            left = 1 - survival
            masses.append(self._round(left, lambda left=left: left))
        for plane in range(loops, self._planes):
            for layer in range(self._config.num_hidden_layers):
                self._kv[plane, layer].append(self._kv[loops - 1, layer][position])
        return x, masses

    def _survive(self, survival: Tensor, state: Tensor) -> Tensor:
        gate, bias = (self._weights[f"model.early_exit_gate.{w}"] for w in ("weight", "bias"))
        logit = self._dot(gate, state)[0] + bias[0]
        logit = self._round(logit, logit.abs)
        hazard = torch.sigmoid(logit)
        hazard = self._round(hazard, lambda: 4 * hazard)
        return self._product(survival, self._round(1 - hazard, lambda: 1 - hazard))

    # ---- one layer ---------------------------------------------------------------------------

    def _layer(self, x: Tensor, layer: int, position: int, loop: int) -> Tensor:
        name = f"model.layers.{layer}"
        attended = self._attention(self._norm(x, f"{name}.input_layernorm"), layer, position, loop)
        x = self._sum(x, self._norm(attended, f"{name}.input_layernorm_2"))
        y = self._norm(x, f"{name}.post_attention_layernorm")
        gate, up = (self._dot(self._weights[f"{name}.mlp.{w}_proj.weight"], y) for w in GATE_UP)
        inner = self._round(torch.sigmoid(gate) * gate, lambda: 6 * gate.abs())
        down = self._dot(self._weights[f"{name}.mlp.down_proj.weight"], self._product(inner, up))
        return self._sum(x, self._norm(down, f"{name}.post_attention_layernorm_2"))

    def _attention(self, y: Tensor, layer: int, position: int, loop: int) -> Tensor:
        config, name = self._config, f"model.layers.{layer}.self_attn"
        q, k, v = (
            self._dot(self._weights[f"{name}.{w}_proj.weight"], y).view(-1, config.head_dim)
            for w in "qkv"
        )
        q, k = self._rotate(q, position), self._rotate(k, position)
        history = self._kv[loop if self._planes > 1 else 0, layer]
        history[position:] = [(k, v)]
        group = config.num_attention_heads // config.num_key_value_heads
        keys, values = (
            torch.stack(side, dim=1).repeat_interleave(group, dim=0)  # [heads, positions, dim]
            for side in zip(*history, strict=True)
        )
        weights = self._softmax(self._dot(keys, q) / math.sqrt(config.head_dim))
        read = self._dot(values.transpose(1, 2), weights)
        return self._dot(self._weights[f"{name}.o_proj.weight"], read.flatten())

    def _rotate(self, x: Tensor, position: int) -> Tensor:
        """x [heads, dim]: pairs are (j, j + dim / 2)."""
        half = self._config.head_dim // 2
        exponents = -torch.arange(half, dtype=torch.float64) / half
        angles = position * self._config.rope_theta**exponents
        # theta^e in fp32 carries the rounding of e, times ln(theta).
        worst = 4 + 2 * math.log(self._config.rope_theta)
        angles = self._round(angles, lambda: worst * angles)
        cos, sin = (
            self._round(f(angles), lambda: torch.tensor(2.0)) for f in (torch.cos, torch.sin)
        )
        first, second = x[:, :half], x[:, half:]
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return self._round(turned, lambda: 2 * torch.hypot(first, second).repeat(1, 2))

    def _softmax(self, scores: Tensor) -> Tensor:
        """Over the last dimension; the scaling of the scores counts as a rounding of theirs."""
        scores = self._round(scores, lambda: 2 * scores.abs())
        shifted = scores - scores.detach().amax(dim=-1, keepdim=True)
        raised = self._round(shifted.exp(), lambda: (4 - 2 * shifted) * shifted.exp())
        total = raised.sum(dim=-1, keepdim=True)
        total = self._round(total, lambda: math.sqrt(scores.shape[-1] + 1) * total)
        return self._round(raised / total, lambda: 2 * raised / total)

    # ---- arithmetic --------------------------------------------------------------------------

    def _norm(self, x: Tensor, name: str) -> Tensor:
        square = (x**2).mean()
        square = self._round(square, lambda: math.sqrt(x.shape[0] + 2) * square)
        inverse = (square + self._config.rms_norm_eps).rsqrt()
        inverse = self._round(inverse, lambda: 3 * inverse)
        y = self._weights[f"{name}.weight"] * (x * inverse)
        return self._round(y, lambda: 2 * y.abs())

    def _dot(self, matrix: Tensor, vector: Tensor) -> Tensor:
        """matrix [..., m, n] times vector [..., n]: n products and n partial sums."""

        def size() -> Tensor:
            magnitude = (matrix.abs() @ vector.abs().unsqueeze(-1)).squeeze(-1)
            return math.sqrt(matrix.shape[-1] + 2) * magnitude

        return self._round((matrix @ vector.unsqueeze(-1)).squeeze(-1), size)

    def _sum(self, a: Tensor, b: Tensor) -> Tensor:
        return self._round(a + b, (a + b).abs)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        return self._round(a * b, (a * b).abs)


GATE_UP = ("gate", "up")
