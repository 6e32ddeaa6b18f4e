"""Whole batches through the loops at once, with early exits, for training and evaluation.

The same numbers as serving with the KV layout `last_exited`: a token that has left keeps its state,
and deeper loops read the keys and values of its last loop. Differentiable; no paging, no requests.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from runner.models.ouro import OuroModel

from .arithmetic import MAX_ANSWER_LENGTH
from .tokenizer import EOS_TOKEN_ID


class ExitPlan(NamedTuple):
    """When each token leaves, all [B, T]: at the latest after `depth` loops; where `threshold` is
    below 1, once it ran `min_loops` and its cumulative hazard reaches `threshold`.
    """

    depth: Tensor
    threshold: Tensor
    min_loops: Tensor


class Loops(NamedTuple):
    """What the loops computed; entry t belongs to loop t + 1.

    `states` [B, T, hidden] and `gates` [B, T], valid where a token `ran` that loop (bool [B, T]).
    `exit_depth` [B, T] is the number of loops each token ran.
    """

    states: list[Tensor]
    gates: list[Tensor]
    ran: list[Tensor]
    exit_depth: Tensor


class _DenseAttention:
    """Causal attention over a [B, T] batch that keeps what exited tokens last wrote."""

    def __init__(self, batch: int, length: int) -> None:
        self.shape = (batch, length)
        self.ran: Tensor | None = None  # None: every token runs this loop
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.ran is not None:
            old_k, old_v = self.kept[layer]
            rows = self.ran.reshape(-1, 1, 1)
            k, v = torch.where(rows, k, old_k), torch.where(rows, v, old_v)
        self.kept[layer] = (k, v)
        q4, k4, v4 = (x.view(*self.shape, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        read = functional.scaled_dot_product_attention(
            q4, k4, v4, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )
        return read.transpose(1, 2).flatten(0, 1)


def run_loops(model: OuroModel, tokens: Tensor, plan: ExitPlan) -> Loops:
    """All loops over tokens [B, T]; every row starts at position 0."""
    batch, length = tokens.shape
    positions = torch.arange(length, device=tokens.device).repeat(batch)
    attend = _DenseAttention(batch, length)
    hidden = model.prelude(tokens.reshape(-1))
    inside = torch.ones_like(tokens, dtype=torch.bool)
    survival = torch.ones_like(tokens, dtype=torch.float32)
    exit_depth = torch.zeros_like(tokens)
    loops = Loops([], [], [], exit_depth)
    for loop in range(1, model.config.total_ut_steps + 1):
        attend.ran = inside if loop > 1 else None
        new, gate = model.recurrent(hidden, positions, attend)
        hidden = torch.where(inside.reshape(-1, 1), new, hidden) if loop > 1 else new
        gate = gate.view(batch, length)
        loops.states.append(hidden.view(batch, length, -1))
        loops.gates.append(gate)
        loops.ran.append(inside)
        exit_depth += inside
        survival = survival * (1 - torch.sigmoid(gate.detach()))
        by_gate = (plan.threshold < 1) & (plan.min_loops <= loop)
        by_gate &= 1 - survival >= plan.threshold
        inside = inside & ~(by_gate | (plan.depth <= loop))
    return loops


class Answers(NamedTuple):
    """Greedy outputs [B, MAX_ANSWER_LENGTH] and the loops behind each; `lengths` [B] counts up to
    and including the end token, or all of them where there is none.
    """

    tokens: Tensor
    exit_depths: Tensor
    lengths: Tensor


@torch.no_grad()
def answer(
    model: OuroModel,
    prompts: Tensor,
    prompt_length: Tensor,
    *,
    threshold: float,
    min_loops: int,
) -> Answers:
    """Greedy answers to prompts [B, T] (anything after `prompt_length` is ignored).

    Prompts, and so output 0, run at full depth; later outputs leave by the exit rule.
    """
    full_depth = model.config.total_ut_steps
    batch, width = prompts.shape[0], int(prompt_length.max()) + MAX_ANSWER_LENGTH
    tokens = torch.full((batch, width), EOS_TOKEN_ID, device=prompts.device)
    copied = min(width, prompts.shape[1])
    tokens[:, :copied] = prompts[:, :copied]
    depth = torch.full_like(tokens, full_depth)
    thresholds = torch.ones_like(tokens, dtype=torch.float32)
    at_least = torch.full_like(tokens, min_loops)
    rows = torch.arange(batch, device=prompts.device)
    outputs, depths = [], []
    for index in range(MAX_ANSWER_LENGTH):
        last = prompt_length + index - 1
        if index > 0:
            thresholds[rows, last] = threshold
        loops = run_loops(model, tokens, ExitPlan(depth, thresholds, at_least))
        outputs.append(model.coda(loops.states[-1][rows, last]).argmax(dim=-1))
        depths.append(loops.exit_depth[rows, last])
        depth[rows, last], thresholds[rows, last] = depths[-1], 1.0  # decided, never again
        tokens[rows, last + 1] = outputs[-1]
    stacked = torch.stack(outputs, dim=1)
    ended = (stacked == EOS_TOKEN_ID).cumsum(dim=1)
    lengths = 1 + (ended[:, :-1] == 0).sum(dim=1)
    return Answers(stacked, torch.stack(depths, dim=1), lengths)
