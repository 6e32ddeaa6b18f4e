"""One loop of the network for serving: fused weights, and a kernel for all between the products.

The same arithmetic as `models.ouro`, which stays the definition. No scheduling and no tables here.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .kernels.launch_shapes import SHARED_BYTES, LayerShapes, SkinnyShape, layer_shapes
from .models.ouro import DecoderLayer, OuroModel

# Rows of every product where results must not depend on how many rows there are: products of one
# shape are computed alike, row by row. 128 rows cost about what one does: the weights are the load.
INVARIANT_ROWS: Final = 128

# Attention of the rows of one model call: rotate q and k, store k and v, attend.
AttendInto = Callable[[int, Tensor, Tensor, Tensor, Tensor], None]  # layer, q, k, v, out


class _Layer(NamedTuple):
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm_before: Tensor
    norm_attended: Tensor
    norm_between: Tensor
    norm_after: Tensor


class FusedLoop:
    """The layers and the final norm, whatever pool they read.

    The model's own q, k, v, gate and up weights become views of the fused ones, so that nothing is
    held twice; `state_dict` is as before.
    """

    def __init__(
        self,
        model: OuroModel,
        kernels: ModuleType,
        *,
        positions: int,
        batch_invariant: bool,
    ) -> None:
        config = model.config
        self._kernels = kernels
        self._eps = config.rms_norm_eps
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._head_dim = config.head_dim
        last_key = self._heads + self._kv_heads
        self._head_ranges = (
            (0, self._heads),
            (self._heads, last_key),
            (last_key, last_key + self._kv_heads),
        )
        self._batch_invariant = batch_invariant
        weight = model.lm_head.weight
        self._layers = [_fused(layer) for layer in model.model.layers]
        self._has_skinny = weight.element_size() == 2 and _has_room(weight.device)
        self._final_norm = model.model.norm.weight
        steps = torch.arange(positions, device=weight.device)
        self.rotation = model.model.rotary(steps, weight.dtype)

    def padded(self, rows: int) -> int:
        """How many rows a call of `rows` rows takes: more only where results are invariant."""
        return -(-rows // INVARIANT_ROWS) * INVARIANT_ROWS if self._batch_invariant else rows

    def first_norm(self, states: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rows `slots` of `states`, zeros for -1, and their norm before the first layer."""
        shape = (slots.shape[0], states.shape[1])
        x, y = states.new_empty(shape), states.new_empty(shape)
        weight = self._layers[0].norm_before
        self._kernels.gather_norm(states, slots, x, y, weight, self._eps)
        return x, y

    def run(self, x: Tensor, y: Tensor, attend: AttendInto) -> Tensor:
        """Every layer once, then the final norm: [rows, hidden]. x and y as `first_norm` made them;
        both are used up. With invariance their rows are a multiple of INVARIANT_ROWS.
        """
        kernels = self._kernels
        count, heads, kv_heads = x.shape[0], self._heads, self._kv_heads
        attended = x.new_empty((count, heads, self._head_dim))
        shapes = self._shapes(count)
        for index, layer in enumerate(self._layers):
            qkv = self._product(y, layer.qkv, shapes.qkv)
            qkv = qkv.view(count, heads + 2 * kv_heads, self._head_dim)
            q, k, v = (qkv[:, first:end] for first, end in self._head_ranges)
            attend(index, q, k, v, attended)
            delta = self._product(attended.view(count, -1), layer.out, shapes.out)
            kernels.add_norms(x, delta, y, layer.norm_attended, layer.norm_between, self._eps)
            inner = self._gated(y, layer.gate_up, shapes.gate_up)
            delta = self._product(inner, layer.down, shapes.down)
            is_last = index + 1 == len(self._layers)
            norm = self._final_norm if is_last else self._layers[index + 1].norm_before
            kernels.add_norms(x, delta, y, layer.norm_after, norm, self._eps)
        return y

    def _shapes(self, rows: int) -> LayerShapes:
        """How the products of a layer are cut; few rows of 16 bits have kernels of their own."""
        layer = self._layers[0]
        if self._batch_invariant or not self._has_skinny:
            return LayerShapes(None, None, None, None)
        qkv, hidden = layer.qkv.shape
        return layer_shapes(rows, hidden, qkv, layer.out.shape[1], layer.down.shape[1])

    def _product(self, x: Tensor, weight: Tensor, shape: SkinnyShape | None) -> Tensor:
        """The product, or fp32 parts of it [parts, rows, out] that are yet to be added."""
        if shape is None:
            return self.product(x, weight)
        rows, outputs = x.shape[0], weight.shape[0]
        if shape.parts == 1:
            out = x.new_empty((rows, outputs))
        else:
            out = x.new_empty((shape.parts, rows, outputs), dtype=torch.float32)
        self._kernels.skinny_linear(x, weight, out, shape)
        return out

    def _gated(self, x: Tensor, weight: Tensor, shape: SkinnyShape | None) -> Tensor:
        """silu(gate) * up of x [rows, in]: [rows, inner]."""
        inner = x.new_empty((x.shape[0], weight.shape[0] // 2))
        if shape is None:
            self._kernels.silu_mul(self.product(x, weight), inner)
        else:
            self._kernels.skinny_silu(x, weight, inner, shape)
        return inner

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """X [rows, in] times weight [out, in]; with invariance in parts of INVARIANT_ROWS."""
        if not self._batch_invariant or x.shape[0] == INVARIANT_ROWS:
            return functional.linear(x, weight)
        starts = range(0, x.shape[0], INVARIANT_ROWS)
        parts = [functional.linear(x[i : i + INVARIANT_ROWS], weight) for i in starts]
        return torch.cat(parts)


def _has_room(device: torch.device) -> bool:
    """Whether a program may hold the stages that the shapes of skinny products ask for."""
    if device.type != "cuda":
        return True
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 0)) >= SHARED_BYTES


def _fused(layer: nn.Module) -> _Layer:
    assert isinstance(layer, DecoderLayer)
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        qkv=_joined(attention.q_proj, attention.k_proj, attention.v_proj),
        out=attention.o_proj.weight,
        gate_up=_joined(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj.weight,
        norm_before=layer.input_layernorm.weight,
        norm_attended=layer.input_layernorm_2.weight,
        norm_between=layer.post_attention_layernorm.weight,
        norm_after=layer.post_attention_layernorm_2.weight,
    )


def _joined(*parts: nn.Linear) -> Tensor:
    """The parts' weights as one tensor, of which they become views; joined ones stay as they are.

    Parts that were joined before lie one behind the other in one storage.
    """
    sizes = [part.weight.shape[0] for part in parts]
    first = parts[0].weight
    end = first.data_ptr()
    is_joined = True
    for part in parts:
        is_joined &= part.weight.data_ptr() == end
        is_joined &= part.weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        end += part.weight.numel() * part.weight.element_size()
    if is_joined:
        return first.detach().as_strided((sum(sizes), first.shape[1]), (first.shape[1], 1))
    joined = torch.cat([part.weight.detach() for part in parts])
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        part.weight = nn.Parameter(joined[start : start + size], requires_grad=False)
        start += size
    return joined
