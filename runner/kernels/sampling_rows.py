"""What the rows of a coda ask of the sampler, as small tensors."""

from typing import NamedTuple

from torch import Tensor


class SamplingRows(NamedTuple):
    """One entry per row. A temperature of 0 is greedy; slot -1 is padding."""

    slots: Tensor  # int32 [rows]
    temperatures: Tensor  # fp64 [rows]
    top_ps: Tensor  # fp64 [rows]
    top_ks: Tensor  # int32 [rows], at most 0: all
    seeds: Tensor  # int64 [rows]
    indices: Tensor  # int64 [rows], of the outputs to be drawn
