"""How launches are cut: plain arithmetic and figures measured on one card, without Triton."""

from typing import Final, NamedTuple

from .paging import power_of_two


class SkinnyShape(NamedTuple):
    """A product of few rows: outputs per program, inputs per step, parts of the inputs."""

    tile: int
    step: int
    parts: int = 1
    stages: int = 4
    warps: int = 4

    def fits(self, outputs: int, inputs: int) -> bool:
        """Whether the product divides into such programs."""
        return outputs % self.tile == 0 and inputs % (self.parts * self.step) == 0


class LayerShapes(NamedTuple):
    """How the four products of a layer are cut; None: the library's product."""

    qkv: SkinnyShape | None
    out: SkinnyShape | None
    gate_up: SkinnyShape | None
    down: SkinnyShape | None


# Measured on an H200 with 2,048 hidden and 5,632 inner units: see docs/performance.md.
_FEW: Final = LayerShapes(
    qkv=SkinnyShape(64, 128, stages=6),
    out=SkinnyShape(64, 64, parts=4, stages=6),
    gate_up=SkinnyShape(64, 128),
    down=SkinnyShape(64, 128, parts=4),
)
_SOME: Final = _FEW._replace(qkv=None, gate_up=None)
_MOST_FEW, _MOST_SOME = 64, 128
SHARED_BYTES: Final = 200 * 1024  # of shared memory that these shapes may take: Hopper and later


def layer_shapes(rows: int, hidden: int, qkv: int, attended: int, inner: int) -> LayerShapes:
    """Shapes for so many rows of a layer of these sizes."""
    if rows > _MOST_SOME:
        return LayerShapes(None, None, None, None)
    wanted = _FEW if rows <= _MOST_FEW else _SOME
    sizes = ((qkv, hidden), (hidden, attended), (inner, hidden), (hidden, inner))
    fitting = (
        shape if shape is not None and shape.fits(*size) else None
        for shape, size in zip(wanted, sizes, strict=True)
    )
    return LayerShapes(*fitting)


def choose_splits(rows: int, kv_heads: int, processors: int) -> int:
    """Programs per row and KV head: as many as keep within seven per multiprocessor."""
    wanted = max(1, 7 * processors // max(1, rows * kv_heads))
    return min(16, power_of_two(wanted + 1) // 2)
