"""What a policy sees, what it says, and how one is found. Policies hold no state and no hands."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from ..state import EngineState
from ..states import WorkKey


class Turn(NamedTuple):
    """Try a batch of these works next; `reason` is recorded if it forms. No works: admit first."""

    works: tuple[WorkKey, ...]
    reason: str


ADMIT: Final = Turn((), "admit")


class View:
    """The engine's state as a policy may read it."""

    __slots__ = ("_state",)

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def ready(self, key: WorkKey) -> int:
        """How many requests have this work pending."""
        return len(self._state.queues[key])

    @property
    def decode_due(self) -> bool:
        """Prompt batches have had their share since the last decode loop."""
        return self._state.decode_due

    @property
    def min_coda_batch_size(self) -> int:
        """A coda waits for this many rows while loops are still running."""
        return self._state.config.scheduler.min_coda_batch_size


class Policy(Protocol):
    """An opinion on what runs next."""

    def rank(self, view: View) -> Iterator[Turn]:
        """The turns in the order to try. A generator: it looks at `view` anew after each turn that
        formed no batch, so that what ADMIT changed is seen.
        """
