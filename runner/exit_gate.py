"""The exit gate: how likely a token's loops so far were its last, and what the gate makes of it.

Only the gate's opinion of the loop just done. Minimum and maximum loops, forced depths and exits
that are one loop late are the engine's to apply.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class ExitGate:
    """Survival S = prod(1 - lambda) of the token in each state row, fp32 on the model's device.

    lambda = sigmoid(g) after each loop (Ouro's gate); loops below min_loops count in S as well.
    """

    def __init__(self, state_rows: int, device: torch.device) -> None:
        self._survival = torch.ones(state_rows, dtype=torch.float32, device=device)

    @property
    def survival(self) -> Tensor:
        """S of every state row, fp32 [state rows]: for kernels that fold it on the device."""
        return self._survival

    def reset(self, state_rows: Tensor) -> None:
        """A new token begins in each of `state_rows`: S = 1."""
        self._survival[state_rows] = 1.0

    def after_loop(
        self, state_rows: Tensor, logits: Tensor, exit_thresholds: Sequence[float]
    ) -> list[bool]:
        """Fold one loop's gate logits (fp32 [rows]) into S; may each row leave the loop?

        True iff exit_threshold < 1 and 1 - S >= exit_threshold.
        """
        survival = self._survival[state_rows] * (1.0 - torch.sigmoid(logits.float()))
        self._survival[state_rows] = survival
        thresholds = torch.tensor(exit_thresholds, dtype=torch.float32)
        reached: list[bool] = (1.0 - survival >= thresholds.to(survival.device)).tolist()
        return [
            is_reached and threshold < 1
            for is_reached, threshold in zip(reached, exit_thresholds, strict=True)
        ]

    def save(self, state_row: int) -> float:
        """S of one state row, for a snapshot."""
        return float(self._survival[state_row].item())

    def load(self, state_row: int, survival: float) -> None:
        """Put a saved S into a state row."""
        self._survival[state_row] = survival
