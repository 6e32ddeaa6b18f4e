"""Verdicts: why a request was not admitted, or was left out of the batch of its own key.

One row per request and change of the reason's first word, with the numbers of that moment.
"""

from collections.abc import Iterable

from .events import VerdictGiven
from .recorder import Recorder
from .state import Request


class Verdicts:
    """Records verdicts, or nothing at all where they are turned off."""

    __slots__ = ("_enabled", "_recorder")

    def __init__(self, recorder: Recorder, *, enabled: bool) -> None:
        self._recorder = recorder
        self._enabled = enabled

    def give(self, requests: Iterable[Request], reason: str) -> None:
        """Say the same of several requests; repeats of the first word are not recorded."""
        if not self._enabled:
            return
        word = reason.partition(" ")[0]
        for request in requests:
            if request.verdict != word:
                self._recorder.record(VerdictGiven(request.ref, reason))
