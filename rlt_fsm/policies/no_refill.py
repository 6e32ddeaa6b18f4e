"""No refill: a cohort loops until its last row has left, then all codas, then the next cohort.

The phase is not stored: it follows from the last batch and from which queues are empty.
CORE: the last batch was a decode loop and loops are pending. CODA: the last batch was a decode loop
or a coda and codas are pending. FILL: everything else.
"""

from collections.abc import Iterator

from ..states import WorkKey
from .base import Turn, View, admission_and_prompts

_CORE = (WorkKey.DECODE_RECURRENT,)
_CODA = (WorkKey.DECODE_CODA,)


class NoRefill:
    """Whole cohorts: all loops, all codas, then admission, prompts and the next preludes."""

    def rank(self, view: View) -> Iterator[Turn]:
        """See `Policy.rank`."""
        if view.last_works == _CORE and view.ready(WorkKey.DECODE_RECURRENT):
            yield Turn(_CORE, "core")
        if view.last_works in {_CORE, _CODA} and view.ready(WorkKey.DECODE_CODA):
            yield Turn(_CODA, "coda")
        if view.decode_due:
            if view.ready(WorkKey.DECODE_PRELUDE):
                yield Turn((WorkKey.DECODE_PRELUDE,), "fill-due")
            if view.ready(WorkKey.DECODE_RECURRENT):
                yield Turn(_CORE, "decode-due")
        yield from admission_and_prompts(view)
        for key in (WorkKey.DECODE_CODA, WorkKey.DECODE_PRELUDE, WorkKey.DECODE_RECURRENT):
            if view.ready(key):
                yield Turn((key,), "fill")
