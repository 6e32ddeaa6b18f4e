"""Which choices of a request exact arithmetic allows, and by how much others miss.

A second, plain reading of the exit rule and of the sampler over fp64 values. Each function yields
the explanations of one choice, each a list of margins: quantities that would have to be wrong by
that much. An empty list means that the choice is the exact one; no explanation, that no rounding
can bring it about.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm import SamplingParams
from runner.draws import uniform

# Gaps beyond this are no near-ties whatever the bound says: do not try them.
WIDE = 0.05


class Margin(NamedTuple):
    """What would have to be wrong, and by how much (0 or more, a scalar)."""

    what: str
    by: Tensor


Explanation = list[Margin]


def exit_explanations(
    params: SamplingParams, index: int, masses: Sequence[Tensor], full_depth: int
) -> Iterator[Explanation]:
    """Of output `index` having left after `len(masses)` loops, `masses` being 1 - S after each."""
    depth = len(masses)
    if index == 0:
        forced: int | None = full_depth
    else:
        forced = None if params.exit_depths is None else params.exit_depths[index]
    if forced is not None:
        if depth == forced:
            yield []
        return
    deepest = full_depth if params.max_loops is None else params.max_loops
    is_adaptive = params.exit_threshold < 1
    if depth > deepest or (depth < deepest and (not is_adaptive or depth < params.min_loops)):
        return
    missed: Explanation = []
    for loops, mass in enumerate(masses, start=1):
        beyond = mass - params.exit_threshold
        stayed = loops < depth
        if stayed and is_adaptive and loops >= params.min_loops and beyond >= 0:
            missed.append(Margin(f"stayed after loop {loops}", beyond))
        if not stayed and loops < deepest and beyond < 0:
            missed.append(Margin(f"left after loop {loops}", -beyond))
    yield missed


def token_explanations(
    params: SamplingParams, index: int, logits: Tensor, token: int
) -> Iterator[Explanation]:
    """Of output `index` being `token`, given its exact logits."""
    if params.temperature == 0:
        best = int(logits.argmax())
        gap = logits[best] - logits[token]
        yield [] if token == best else [Margin("greedy", gap)]
        return
    scaled = logits / params.temperature
    probabilities = torch.softmax(scaled, dim=0)
    assert params.seed is not None
    point = uniform(params.seed, index)
    for tokens, missed in _supports(params, logits, probabilities):
        if token in tokens:
            yield [*missed, *_draw(probabilities[tokens], tokens.index(token), point)]


def _draw(weights: Tensor, rank: int, point: float) -> Explanation:
    """The inverse CDF at `point` falls on `rank` iff below <= point < above."""
    mass = weights.cumsum(0) / weights.sum()
    if rank and mass[rank - 1] > point:
        return [Margin("draw", mass[rank - 1] - point)]
    if rank + 1 < len(weights) and mass[rank] <= point:
        return [Margin("draw", point - mass[rank])]
    return []


Support = tuple[list[int], Explanation]


def _supports(params: SamplingParams, logits: Tensor, probabilities: Tensor) -> Iterator[Support]:
    """The tokens that may be drawn, in the sampler's order: exactly, then one near-tie away."""
    vocabulary = len(logits)
    if not (params.top_p < 1 or 0 < params.top_k < vocabulary):
        yield list(range(vocabulary)), []  # all of them, in the order of their ids
        return
    ranked: list[int] = logits.detach().sort(descending=True, stable=True).indices.tolist()
    count = params.top_k if 0 < params.top_k < vocabulary else vocabulary
    yield from _cuts(ranked, count, params.top_p, probabilities, [])
    if count < vocabulary:  # a tie with the last of the top k is kept as well
        gap = logits[ranked[count - 1]] - logits[ranked[count]]
        if gap < WIDE:
            yield from _cuts(ranked, count + 1, params.top_p, probabilities, [Margin("top k", gap)])
    for rank in range(min(count, vocabulary - 1)):
        first, second = ranked[rank], ranked[rank + 1]
        gap = logits[first] - logits[second]
        if gap < WIDE:
            swapped = [*ranked[:rank], second, first, *ranked[rank + 2 :]]
            yield from _cuts(swapped, count, params.top_p, probabilities, [Margin("order", gap)])


def _cuts(
    ranked: list[int], count: int, top_p: float, probabilities: Tensor, missed: Explanation
) -> Iterator[Support]:
    """The first `count`, cut where the mass before a token exceeds top_p; then a cut beside it."""
    kept = ranked[:count]
    weights = probabilities[kept] / probabilities[kept].sum()
    preceding = weights.cumsum(0) - weights
    size = int((preceding <= top_p).sum())
    yield kept[:size], missed
    if size < len(kept) and preceding[size] - top_p < WIDE:
        yield kept[: size + 1], [*missed, Margin("top p", preceding[size] - top_p)]
    if size > 1 and top_p - preceding[size - 1] < WIDE:
        yield kept[: size - 1], [*missed, Margin("top p", top_p - preceding[size - 1])]
