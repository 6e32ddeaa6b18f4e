"""Products of few rows against fp64: whole, in parts, and with SiLU at the end."""

import pytest
import torch
from kernels.paged import DEVICE, ON_GPU, assert_close, poisoned, random

from runner.kernels import twins
from runner.kernels.launch_shapes import LayerShapes, SkinnyShape, layer_shapes
from runner.kernels.skinny import skinny_linear, skinny_silu

ROWS = [1, 5, 17, 32, 64, 128] if ON_GPU else [1, 17]
SIZES = [(6144, 2048), (2048, 5632)] if ON_GPU else [(128, 256)]
SHAPES = [SkinnyShape(64, 64), SkinnyShape(64, 64, parts=4), SkinnyShape(128, 64, parts=2)]
HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_a_product_and_its_parts_add_up(rows, size, shape, dtype):
    outputs, inputs = size
    x, weight = random(rows, inputs, dtype=dtype), random(outputs, inputs, dtype=dtype)
    if shape.parts == 1:
        out = poisoned(rows, outputs, dtype=dtype)
    else:
        out = poisoned(shape.parts, rows, outputs, dtype=torch.float32)
    skinny_linear(x, weight, out, shape)
    expected = torch.empty(out.shape, dtype=torch.float64, device=DEVICE)
    twins.skinny_linear(x.double(), weight.double(), expected, shape)
    assert_close(out, expected, dtype if shape.parts == 1 else torch.float32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_gate_and_up_are_one_product(rows, dtype):
    x, weight = random(rows, 256, dtype=dtype), random(2 * 128, 256, dtype=dtype, scale=0.1)
    out = poisoned(rows, 128, dtype=dtype)
    skinny_silu(x, weight, out, SkinnyShape(64, 64))
    expected = torch.empty(rows, 128, dtype=torch.float64, device=DEVICE)
    twins.skinny_silu(x.double(), weight.double(), expected, SkinnyShape(64, 64))
    assert_close(out, expected, dtype)


def test_a_shape_is_used_only_where_the_sizes_divide():
    sizes = {"hidden": 2048, "qkv": 6144, "attended": 2048, "inner": 5632}
    assert None not in layer_shapes(32, **sizes)
    assert layer_shapes(129, **sizes) == LayerShapes(None, None, None, None)
    assert layer_shapes(32, hidden=96, qkv=288, attended=96, inner=256).qkv is None
