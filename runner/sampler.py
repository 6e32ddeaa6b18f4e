"""From logits to one token per row. Each row depends on its own logits, parameters and index only.

The order is fixed: temperature, top-k, top-p, softmax, one draw. When to stop is not decided here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlt_fsm.params import SamplingParams

from .draws import uniform


class Draw(NamedTuple):
    """What one row wants: its parameters (seed resolved) and the index of its output."""

    params: SamplingParams
    output_idx: int


class Sampled(NamedTuple):
    """Tokens by row; a logprob is None where it was not asked for."""

    token_ids: list[int]
    logprobs: list[float | None]


def sample(logits: Tensor, draws: Sequence[Draw]) -> Sampled:
    """Sample one token per row of `logits` [rows, vocabulary].

    Temperature 0 takes the first of the largest logits. A logprob is of the raw fp32 logits, before
    temperature and filters.
    """
    assert logits.shape[0] == len(draws), (tuple(logits.shape), len(draws))
    raw = logits.float()
    tokens = raw.argmax(dim=-1)
    vocabulary = raw.shape[-1]
    kinds = [_kind(draw.params, vocabulary) for draw in draws]
    for kind, pick in (("plain", _pick_plain), ("filtered", _pick_filtered)):
        rows = [i for i, own in enumerate(kinds) if own == kind]
        if rows:
            index = torch.tensor(rows, device=raw.device)
            tokens[index] = pick(raw[index], [draws[i] for i in rows])
    token_ids: list[int] = tokens.tolist()
    return Sampled(token_ids, _logprobs(raw, tokens, draws))


def _kind(params: SamplingParams, vocabulary: int) -> str:
    if params.temperature == 0:
        return "greedy"
    is_filtered = params.top_p < 1 or 0 < params.top_k < vocabulary
    return "filtered" if is_filtered else "plain"


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device).unsqueeze(1)


def _probabilities(raw: Tensor, draws: Sequence[Draw]) -> Tensor:
    temperatures = _column([draw.params.temperature for draw in draws], raw)
    # Shift before scaling: the largest logit becomes 0, so no temperature can overflow.
    shifted = raw.double() - raw.double().amax(dim=-1, keepdim=True)
    return torch.softmax(shifted / temperatures, dim=-1)


def _pick_plain(raw: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Inverse CDF over all tokens in the order of their ids."""
    return _inverse_cdf(_probabilities(raw, draws), draws)


def _pick_filtered(raw: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Inverse CDF over the tokens kept, likeliest first, equals in the order of their ids."""
    ordered, token_of = raw.sort(dim=-1, descending=True, stable=True)
    probabilities = _keep_top_k(ordered, _probabilities(ordered, draws), draws)
    # The mass that precedes a token: with p = 0.6 and 0.5, 0.3, 0.2 the second is kept (0.5).
    mass = probabilities.cumsum(dim=-1)
    preceding = torch.cat((torch.zeros_like(mass[:, :1]), mass[:, :-1]), dim=-1)
    beyond = preceding > _column([draw.params.top_p for draw in draws], raw)
    rank = _inverse_cdf(probabilities.masked_fill(beyond, 0.0), draws)
    return token_of.gather(1, rank.unsqueeze(1)).squeeze(1)


def _keep_top_k(ordered: Tensor, probabilities: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Drop what is below the k-th largest logit (its equals stay), then renormalise."""
    vocabulary = ordered.shape[-1]
    last = [min(k, vocabulary) - 1 if (k := d.params.top_k) > 0 else vocabulary - 1 for d in draws]
    floor = ordered.gather(1, torch.tensor(last, device=ordered.device).unsqueeze(1))
    kept = probabilities.masked_fill(ordered < floor, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def _inverse_cdf(weights: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The first index whose cumulative weight exceeds u times the total."""
    mass = weights.cumsum(dim=-1)
    points = _column([uniform(_seed(d.params), d.output_idx) for d in draws], weights)
    # u * total may round up to the total itself: then the last index with weight is meant.
    heavy = weights > 0
    last = heavy.shape[-1] - 1 - heavy.flip(-1).to(torch.uint8).argmax(dim=-1)
    index = (mass <= points * mass[:, -1:]).sum(dim=-1)
    return torch.minimum(index, last)


def _seed(params: SamplingParams) -> int:
    assert params.seed is not None, "the engine resolves a seed of None before a request is run"
    return params.seed


def _logprobs(raw: Tensor, tokens: Tensor, draws: Sequence[Draw]) -> list[float | None]:
    wanted = [draw.params.logprobs is not None for draw in draws]
    if not any(wanted):
        return [None] * len(draws)
    chosen = torch.log_softmax(raw, dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1).tolist()
    return [value if asked else None for value, asked in zip(chosen, wanted, strict=True)]
