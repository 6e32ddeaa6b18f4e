"""Matrix products of few rows, which are the time to read the weights: tiles of the weight stream
through, against all rows at once. Larger ones are the library's.
"""

import triton
import triton.language as tl
from torch import Tensor

from .attending import product
from .launch_shapes import SkinnyShape
from .paging import power_of_two


@triton.jit
def _skinny(
    x, weight, out, rows, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, ROWS: tl.constexpr,
    TILE: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr, PAIR: tl.constexpr,
    STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """TILE outputs of all rows over one of PARTS ranges of the inputs. PAIR: silu(gate) * up."""
    output = tl.program_id(0) * TILE + tl.arange(0, TILE)
    part = tl.program_id(1)
    row = tl.arange(0, ROWS)
    step = tl.arange(0, STEP)
    mask = (row < rows)[:, None]
    PER_PART: tl.constexpr = INPUTS // PARTS
    at_x = x + row[:, None] * INPUTS + part * PER_PART + step[None, :]
    at_w = weight + output[:, None].to(tl.int64) * INPUTS + part * PER_PART + step[None, :]
    summed = tl.zeros([TILE, ROWS], tl.float32)
    other = tl.zeros([TILE, ROWS], tl.float32)
    for _ in tl.range(0, PER_PART, STEP, num_stages=STAGES):
        inputs = tl.trans(tl.load(at_x, mask=mask, other=0.0))
        summed = product(tl.load(at_w, eviction_policy="evict_first"), inputs, summed, WIDEN)
        if PAIR:
            up = tl.load(at_w + OUTPUTS * INPUTS, eviction_policy="evict_first")
            other = product(up, inputs, other, WIDEN)
        at_x += STEP
        at_w += STEP
    if PAIR:
        summed = summed / (1.0 + tl.exp(-summed)) * other
    target = out + part * rows * OUTPUTS + row[:, None] * OUTPUTS + output[None, :]
    tl.store(target, tl.trans(summed), mask=mask)


def skinny_linear(x: Tensor, weight: Tensor, out: Tensor, shape: SkinnyShape) -> None:
    """Multiply x [rows, inputs] by weight [outputs, inputs] into out [rows, outputs], or into fp32
    parts of the sum over the inputs, out [parts, rows, outputs].
    """
    _launch(x, weight, out, shape, outputs=weight.shape[0], pair=False)


def skinny_silu(x: Tensor, weight: Tensor, out: Tensor, shape: SkinnyShape) -> None:
    """Set out [rows, size] to silu(gate) * up; `weight` [2 * size, inputs] holds gate, then up."""
    assert shape.parts == 1, shape
    _launch(x, weight, out, shape, outputs=weight.shape[0] // 2, pair=True)


def _launch(
    x: Tensor, weight: Tensor, out: Tensor, shape: SkinnyShape, *, outputs: int, pair: bool
) -> None:
    rows, inputs = x.shape
    _skinny[(outputs // shape.tile, shape.parts)](
        x, weight, out, rows, OUTPUTS=outputs, INPUTS=inputs, ROWS=max(16, power_of_two(rows)),
        TILE=shape.tile, STEP=shape.step, PARTS=shape.parts, PAIR=pair, STAGES=shape.stages,
        WIDEN=not x.is_cuda, num_warps=shape.warps,
    )  # fmt: skip
