"""Mixed: decode and prompt rows share a batch where both would run the same operation.

Both recurrent keys ready: one mixed RECURRENT batch goes first. Prompt tokens are embedded along
with a decode prelude, but only in a batch that forms for decode. Otherwise the refill order.
"""

from collections.abc import Iterator

from ..states import WorkKey
from .base import Turn, View
from .refill import after_decode_prelude


class Mixed:
    """Refill with shared batches; needs split prefill."""

    def rank(self, view: View) -> Iterator[Turn]:
        """See `Policy.rank`."""
        if view.ready(WorkKey.DECODE_RECURRENT) and view.ready(WorkKey.PROMPT_RECURRENT):
            works = (WorkKey.DECODE_RECURRENT, WorkKey.PROMPT_RECURRENT)
            yield Turn(works, "both-loops-ready")
        if view.ready(WorkKey.DECODE_PRELUDE):
            works = (WorkKey.DECODE_PRELUDE, WorkKey.PROMPT_PRELUDE)
            yield Turn(works, "prelude-ready")
        yield from after_decode_prelude(view)
