"""Refill: keep decode batches full; admit and prefill when no decode work is due.

A row that leaves the loop makes room at once: its coda and next prelude go before the others' next
loop, so that it rejoins the running batch.
"""

from collections.abc import Iterator

from ..states import WorkKey
from .base import Turn, View, admission_and_prompts


class Refill:
    """The default order: prelude, coda, due decode loops, admission, prompts, decode loops."""

    def rank(self, view: View) -> Iterator[Turn]:
        """See `Policy.rank`."""
        if view.ready(WorkKey.DECODE_PRELUDE):
            yield Turn((WorkKey.DECODE_PRELUDE,), "prelude-ready")
        yield from after_decode_prelude(view)


def after_decode_prelude(view: View) -> Iterator[Turn]:
    """The rest of the refill order, which `mixed` shares."""
    if _coda_is_due(view):
        yield Turn((WorkKey.DECODE_CODA,), "coda-ready")
    if view.decode_due and view.ready(WorkKey.DECODE_RECURRENT):
        yield Turn((WorkKey.DECODE_RECURRENT,), "decode-due")
    yield from admission_and_prompts(view)
    if view.ready(WorkKey.DECODE_PRELUDE):
        yield Turn((WorkKey.DECODE_PRELUDE,), "prelude-resumed")
    if _coda_is_due(view):
        yield Turn((WorkKey.DECODE_CODA,), "coda-resumed")
    if view.ready(WorkKey.DECODE_RECURRENT):
        yield Turn((WorkKey.DECODE_RECURRENT,), "decode-ready")
    if view.ready(WorkKey.DECODE_CODA):  # below min_coda_batch_size, and no loop could run
        yield Turn((WorkKey.DECODE_CODA,), "coda-last")


def _coda_is_due(view: View) -> bool:
    ready = view.ready(WorkKey.DECODE_CODA)
    if not ready:
        return False
    return ready >= view.min_coda_batch_size or not view.ready(WorkKey.DECODE_RECURRENT)
