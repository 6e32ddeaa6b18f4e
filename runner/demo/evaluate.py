"""How good the demo model is on prompts it never saw, and how many loops it takes.

Measured with batched dense loops that give the numbers of serving with `last_exited`; time per
token is measured on the engine, elsewhere.
"""

from collections.abc import Sequence

import msgspec
import torch

from runner.models.ouro import OuroModel

from .arithmetic import EVALUATION_BUCKET, MAX_ANSWER_LENGTH, Problems, encode, held_out
from .looped import answer

EVALUATION_SEED = 2025
THRESHOLDS = (1.0, 0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.0)


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: an exit rule and what it did to the answers and to the loops.

    `exact` is the share of prompts answered exactly, end token included. Depths are means over all
    output tokens, with output 0 (always full depth) and without it. `depth_counts[d - 1]` outputs
    left after d loops. `fewer_loops` is full depth over `mean_depth`.
    """

    threshold: float
    min_loops: int
    prompts: int
    exact: float
    mean_depth: float
    mean_depth_after_first: float
    fewer_loops: float
    depth_counts: list[int]


def evaluation_problems(count: int = 500) -> Problems:
    """The prompts of the published table: distinct, fixed, never trained on."""
    return held_out(count, EVALUATION_BUCKET, EVALUATION_SEED)


def score(model: OuroModel, problems: Problems, *, threshold: float, min_loops: int) -> Score:
    """Answer `problems` greedily under one exit rule and count."""
    device = next(model.parameters()).device
    sequences = encode(Problems(*(column.to(device) for column in problems)))
    answers = answer(
        model,
        sequences.tokens,
        sequences.prompt_length,
        threshold=threshold,
        min_loops=min_loops,
    )
    steps = torch.arange(MAX_ANSWER_LENGTH, device=device)
    places = (sequences.prompt_length[:, None] + steps).clamp(max=sequences.tokens.shape[1] - 1)
    same = answers.tokens == sequences.tokens.gather(1, places)
    wanted = steps < sequences.answer_length[:, None]
    full_depth = model.config.total_ut_steps
    spoken = steps < answers.lengths[:, None]
    depths = answers.exit_depths[spoken]
    mean_depth = depths.double().mean().item()
    return Score(
        threshold=threshold,
        min_loops=min_loops,
        prompts=len(same),
        exact=(same | ~wanted).all(dim=1).double().mean().item(),
        mean_depth=mean_depth,
        mean_depth_after_first=answers.exit_depths[spoken & (steps > 0)].double().mean().item(),
        fewer_loops=full_depth / mean_depth,
        depth_counts=torch.bincount(depths - 1, minlength=full_depth).tolist(),
    )


def table(model: OuroModel, problems: Problems) -> list[Score]:
    """Every threshold with the default of two loops at least, then with one."""
    return [
        score(model, problems, threshold=threshold, min_loops=min_loops)
        for min_loops in (2, 1)
        for threshold in THRESHOLDS
        if min_loops == 2 or threshold < 1
    ]


def as_markdown(scores: Sequence[Score]) -> str:
    """The table as people read it."""
    lines = [
        "| threshold | min loops | exact | mean exit depth | after output 0 | fewer loops |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {s.threshold:g} | {s.min_loops} | {s.exact:.1%} | {s.mean_depth:.2f} | "
        f"{s.mean_depth_after_first:.2f} | {s.fewer_loops:.2f} |"
        for s in scores
    ]
    return "\n".join(lines)
