"""What the demo model is trained for: right answers at every depth, and a gate that knows when.

The trunk learns from the loop at which a token leaves (in full) and from those before it (a
quarter), under exits of every kind, so that it copes with the shallow keys and values that early
exits leave behind. The gate learns the hazard that the answer is right now and stays right.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from runner.models.ouro import OuroModel

from .arithmetic import MAX_ANSWER_LENGTH, Problems, Sequences, encode, is_for_training
from .looped import ExitPlan, run_loops

EARLIER_WEIGHT = 0.25


class Losses(NamedTuple):
    """Scalars of one batch: both losses, and the share of right answer tokens at the exit."""

    answers: Tensor
    gate: Tensor
    accuracy: Tensor


def draw_plan(
    sequences: Sequences, full_depth: int, generator: torch.Generator, *, gate_share: float
) -> ExitPlan:
    """Exits for a training batch; prompts always run at full depth.

    A share of the sequences runs at full depth, `gate_share` leaves by its own gate at random
    thresholds, and as many leave at random.
    """
    batch, width = sequences.tokens.shape
    device = sequences.tokens.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    kind = uniform(batch, 1)
    columns = torch.arange(width, device=device)
    is_output = columns >= sequences.prompt_length[:, None]
    at_random = is_output & (kind < gate_share)
    by_gate = is_output & (kind >= gate_share) & (kind < 2 * gate_share)
    random_depth = 1 + (uniform(batch, width) * full_depth).long()
    threshold = (0.4 + 0.6 * uniform(batch, 1)).clamp(max=0.999)
    min_loops = 1 + (uniform(batch, 1) < 0.5).long()
    return ExitPlan(
        depth=random_depth.masked_fill(~at_random, full_depth),
        threshold=threshold.expand(batch, width).masked_fill(~by_gate, 1.0),
        min_loops=min_loops.expand(batch, width),
    )


def losses(
    model: OuroModel, problems: Problems, generator: torch.Generator, *, gate_share: float
) -> Losses:
    """Both losses of one batch; held-out problems in it count nothing."""
    sequences = encode(problems)
    inputs = Sequences(sequences.tokens[:, :-1], *sequences[1:])
    plan = draw_plan(inputs, model.config.total_ut_steps, generator, gate_share=gate_share)
    loops = run_loops(model, inputs.tokens, plan)

    # Answer token i is read at the input position prompt_length - 1 + i.
    steps = torch.arange(MAX_ANSWER_LENGTH, device=inputs.tokens.device)
    places = (inputs.prompt_length[:, None] - 1 + steps).clamp(max=inputs.tokens.shape[1] - 1)
    counted = steps < inputs.answer_length[:, None]
    counted &= is_for_training(problems)[:, None]
    targets = sequences.tokens.gather(1, places + 1)
    exits = loops.exit_depth.gather(1, places)

    answers = torch.zeros((), device=targets.device)
    gates, rights, asked = [], [], []
    for loop, (state, gate, ran) in enumerate(
        zip(loops.states, loops.gates, loops.ran, strict=True), start=1
    ):
        logits = model.coda(state.gather(1, places[..., None].expand(-1, -1, state.shape[-1])))
        here = ran.gather(1, places) & counted
        errors = functional.cross_entropy(logits.mT.float(), targets, reduction="none")
        weight = here * (EARLIER_WEIGHT + (1 - EARLIER_WEIGHT) * (exits == loop))
        answers = answers + (errors * weight).sum()
        gates.append(gate.gather(1, places))
        rights.append(logits.argmax(dim=-1) == targets)
        asked.append(here & (steps > 0))  # the gate has no say in output 0

    count = counted.sum().clamp(min=1)
    final = torch.stack(rights).gather(0, exits[None] - 1)[0]
    return Losses(
        answers=answers / count,
        gate=_gate_loss(gates, rights, asked),
        accuracy=(final & counted).sum() / count,
    )


def _gate_loss(gates: list[Tensor], rights: list[Tensor], asked: list[Tensor]) -> Tensor:
    """Binary cross-entropy of each hazard against "right now, and in every later loop it ran"."""
    stays_right = torch.ones_like(rights[0])
    total = torch.zeros((), device=gates[0].device)
    count = torch.zeros((), device=gates[0].device)
    for gate, right, here in zip(reversed(gates), reversed(rights), reversed(asked), strict=True):
        stays_right = stays_right & (right | ~here)
        label = stays_right.float()
        error = functional.binary_cross_entropy_with_logits(gate, label, reduction="none")
        total = total + (error * here).sum()
        count = count + here.sum()
    return total / count.clamp(min=1)
