"""What a policy sees, what it says, and what policies share. They hold no state and no hands."""

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
    def prompt_recurrent_due(self) -> bool:
        """A prompt was embedded since split prompts last ran a loop."""
        return self._state.prelude_batches_since_prompt_recurrent >= 1

    @property
    def last_works(self) -> tuple[WorkKey, ...]:
        """The works of the last batch."""
        return self._state.last_works

    @property
    def min_coda_batch_size(self) -> int:
        """A coda waits for this many rows while loops are still running."""
        return self._state.config.scheduler.min_coda_batch_size


class Policy(Protocol):
    """An opinion on what runs next."""

    def rank(self, view: View) -> Iterator[Turn]:
        """Yield the turns in the order to try.

        A generator: it looks at `view` anew after each turn that formed no batch, so that what
        ADMIT changed is seen.
        """


def admission_and_prompts(view: View) -> Iterator[Turn]:
    """Admission, then prompt work; a split prompt that waits for its loop goes before both.

    Without that order two requests can evict each other's embedded tokens for ever.
    """
    if view.prompt_recurrent_due and view.ready(WorkKey.PROMPT_RECURRENT):
        yield Turn((WorkKey.PROMPT_RECURRENT,), "prompt-loop-due")
    yield ADMIT
    for key in (WorkKey.PROMPT_ATOMIC, WorkKey.PROMPT_PRELUDE, WorkKey.PROMPT_RECURRENT):
        if view.ready(key):
            yield Turn((key,), "prompt-ready")
