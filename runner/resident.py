"""What a request keeps on the device beside its KV: hidden states and its gate, while it is active.

Rows belong to whoever the engine gave them to; parked contents are kept on the host by identity.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .exit_gate import ExitGate
from .written import Owner


class Window(NamedTuple):
    """Hidden states of a split prompt's positions [first, first + rows) between two depths."""

    first: int
    states: Tensor  # [rows, hidden size]

    @property
    def end(self) -> int:
        """One past the last position held."""
        return self.first + self.states.shape[0]


class _Parked(NamedTuple):
    hidden: Tensor
    survival: float
    window: Window | None


class ResidentState:
    """Hidden rows [state rows, hidden size], gates, the tokens last sampled (int64 [state rows]),
    and the windows of split prompts.
    """

    def __init__(
        self,
        rows: int,
        hidden_size: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.hidden = torch.zeros((rows, hidden_size), dtype=dtype, device=device)
        self.gate = ExitGate(rows, device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self._windows: dict[Owner, Window] = {}
        self._parked: dict[Owner, _Parked] = {}

    # ---- split prompts -----------------------------------------------------------------------

    def append(self, owner: Owner, start: int, states: Tensor) -> None:
        """Positions from `start` on were embedded; they wait for depth 0."""
        window = self._windows.get(owner)
        if window is None:
            self._windows[owner] = Window(start, states)
            return
        assert window.end == start, (owner, window.end, start)
        self._windows[owner] = Window(window.first, torch.cat((window.states, states)))

    def read(self, owner: Owner, start: int, end: int) -> Tensor:
        """The states of positions [start, end)."""
        window = self._windows[owner]
        assert window.first <= start < end <= window.end, (owner, window.first, window.end, start)
        return window.states[start - window.first : end - window.first]

    def write(self, owner: Owner, start: int, states: Tensor) -> None:
        """Replace the states of the positions from `start` on."""
        window = self._windows[owner]
        offset = start - window.first
        window.states[offset : offset + states.shape[0]] = states

    def leave(self, owner: Owner, end: int) -> None:
        """Positions before `end` have finished every depth; their states go."""
        window = self._windows[owner]
        if end == window.end:
            del self._windows[owner]
        else:
            self._windows[owner] = Window(end, window.states[end - window.first :].clone())

    # ---- parking -----------------------------------------------------------------------------

    def park(self, owner: Owner, state_row: int) -> None:
        """Keep a row's contents on the host; the row gets another owner."""
        assert owner not in self._parked, f"{owner} is parked already"
        window = self._windows.pop(owner, None)
        if window is not None:
            window = window._replace(states=window.states.to("cpu", copy=True))
        hidden = self.hidden[state_row].to("cpu", copy=True)
        self._parked[owner] = _Parked(hidden, self.gate.save(state_row), window)

    def unpark(self, owner: Owner, state_row: int) -> None:
        """Bring parked contents into a row, which need not be the one they came from."""
        parked = self._parked.pop(owner)
        self.hidden[state_row] = parked.hidden.to(self.hidden.device)
        self.gate.load(state_row, parked.survival)
        if (window := parked.window) is not None:
            # A copy on the CPU as well: the device's own tensor, apart from the parked one.
            states = window.states.to(self.hidden.device, copy=True)
            self._windows[owner] = window._replace(states=states)

    def forget(self, owner: Owner) -> None:
        """Drop everything kept by identity; a state row needs no cleaning."""
        self._windows.pop(owner, None)
        self._parked.pop(owner, None)
