"""The exit gate: how likely a token's loops so far were its last, and what the gate makes of it.

Only the gate's opinion. Minimum and maximum loops and forced depths are the engine's to apply,
save that a delayed signal must know which loop gave it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

ExitSignal = Literal["ouro", "ouro_delayed", "trace"]


class GateRow(NamedTuple):
    """What a row's request asks of the gate, and the loops its token had done before this one."""

    exit_threshold: float
    min_loops: int
    loops_done: int


class ExitGate:
    """Survival S = prod(1 - lambda) of the token in each state row, fp32 on the model's device.

    lambda = sigmoid(g) after each loop (Ouro's gate); loops below min_loops count in S as well.
    With `trace` the gate is computed and reported, and the engine follows the trace.
    """

    def __init__(self, state_rows: int, mode: ExitSignal, device: torch.device) -> None:
        self._mode = mode
        self._survival = torch.ones(state_rows, dtype=torch.float32, device=device)

    @property
    def is_delayed(self) -> bool:
        """Whether answers are those of the loop before."""
        return self._mode == "ouro_delayed"

    @property
    def survival(self) -> Tensor:
        """S of every state row, fp32 [state rows]: for kernels that fold it on the device."""
        return self._survival

    def reset(self, state_rows: Tensor) -> None:
        """A new token begins in each of `state_rows`: S = 1."""
        self._survival[state_rows] = 1.0

    def after_loop(self, state_rows: Tensor, logits: Tensor, rows: Sequence[GateRow]) -> list[bool]:
        """Fold one loop's gate logits (fp32 [rows]) into S; may each row leave the loop?

        True iff exit_threshold < 1 and 1 - S >= exit_threshold. In mode `ouro_delayed` the answer
        is that of the loop before, provided that loop had reached min_loops.
        """
        before = self._survival[state_rows]
        after = before * (1.0 - torch.sigmoid(logits.float()))
        self._survival[state_rows] = after
        is_delayed = self.is_delayed
        exited_mass = 1.0 - (before if is_delayed else after)
        thresholds = torch.tensor([row.exit_threshold for row in rows], dtype=torch.float32)
        reached: list[bool] = (exited_mass >= thresholds.to(exited_mass.device)).tolist()
        return [
            is_reached
            and row.exit_threshold < 1
            and (not is_delayed or row.loops_done >= row.min_loops)
            for is_reached, row in zip(reached, rows, strict=True)
        ]

    def save(self, state_row: int) -> float:
        """S of one state row, for a snapshot."""
        return float(self._survival[state_row].item())

    def load(self, state_row: int, survival: float) -> None:
        """Put a saved S into a state row."""
        self._survival[state_row] = survival
