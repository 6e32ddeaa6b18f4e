"""How long to train, how fast to learn, and what to tell the person who watches."""

import sys
import time
from collections.abc import Iterator

import torch

from .objective import Losses

WARM_UP_SHARE = 0.03
PROGRESS_EVERY_S = 10.0


class Budget:
    """How much of a stage is done, in steps or in wall-clock seconds, as a share from 0 to 1."""

    def __init__(self, *, steps: int | None, seconds: float) -> None:
        self.steps = steps
        self.seconds = seconds
        self.started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self.started

    def shares(self) -> Iterator[tuple[int, float]]:
        """(step, share done), until the budget is spent; at least one step."""
        step, share = 0, 0.0
        while share < 1:
            yield step, share
            step += 1
            share = step / self.steps if self.steps is not None else self.elapsed_s / self.seconds


def set_learning_rate(optimizer: torch.optim.Optimizer, peak: float, share: float) -> None:
    """Rise over the first WARM_UP_SHARE of the budget, then fall in a line to almost nothing."""
    rise, fall = share / WARM_UP_SHARE, (1 - share) / (1 - WARM_UP_SHARE)
    for group in optimizer.param_groups:
        group["lr"] = peak * max(0.01, min(rise, fall))


def say(text: str) -> None:
    """One line for a person who watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Progress:
    """A line every few seconds; reading a loss waits for the device, so no more often."""

    def __init__(self, stage: str, budget: Budget) -> None:
        self.stage = stage
        self.budget = budget
        self.next_s = 0.0

    def show(self, step: int, share: float, loss: Losses) -> None:
        """Say how far the stage is, if it is time to."""
        if self.budget.elapsed_s < self.next_s:
            return
        answers, gate, accuracy = torch.stack(loss).tolist()
        self.next_s = self.budget.elapsed_s + PROGRESS_EVERY_S
        say(
            f"{self.stage:>4} {share:4.0%} step {step:6d} {self.budget.elapsed_s:6.1f} s  "
            f"answers {answers:.4f}  gate {gate:.4f}  right tokens {accuracy:.2%}"
        )
