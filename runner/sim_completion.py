"""When the batches of an asynchronous sim come back: in which order, and how late, by seed alone.

Batch `t` is due `draw(key_of("rlt-sim-completion/1", seed), t) mod (max_delay + 1)` turns after the
turn in which it was submitted; every look for results is a turn. `fifo` hands out what is due in
the order of submission and holds back what waits behind a later one; `random` in an order drawn
per batch, so that a batch overtakes others. A look that must bring something lets turns pass.
Without rules every result is one turn late.
"""

from typing import NamedTuple

from rlt_fsm.batch import BatchResult
from rlt_fsm.counter_hash import draw, key_of
from rlt_fsm.workload import Completion


class _Late(NamedTuple):
    due: int
    rank: int  # of two that are due, the lower comes first
    result: BatchResult


class LateResults:
    """Results that are computed already and not known yet."""

    def __init__(self, completion: Completion | None = None) -> None:
        self._rules = completion
        self._key = 0 if completion is None else key_of("rlt-sim-completion/1", completion.seed)
        self._held: list[_Late] = []  # in the order of submission
        self._turn = 0

    def add(self, result: BatchResult) -> None:
        """A batch was submitted; this is what will come of it."""
        due, rank = self._turn + 2, result.ticket
        if self._rules is not None:
            z = draw(self._key, result.ticket)
            due = self._turn + 1 + (z & 0xFFFFFFFF) % (self._rules.max_delay + 1)
            if self._rules.order == "random":
                rank = z >> 32
            elif self._held:
                due = max(due, self._held[-1].due)
        self._held.append(_Late(due, rank, result))

    def poll(self) -> list[BatchResult]:
        """What is due in this turn."""
        self._turn += 1
        return self._take()

    def collect(self) -> list[BatchResult]:
        """What is due first, however long that takes."""
        assert self._held, "collect() with nothing in flight would wait for ever"
        self._turn = max(self._turn + 1, min(late.due for late in self._held))
        return self._take()

    def fail_oldest(self, error: str) -> bool:
        """Make the oldest batch in flight fail; False where there is none."""
        if not self._held:
            return False
        oldest = self._held[0]
        self._held[0] = oldest._replace(result=BatchResult(oldest.result.ticket, error=error))
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()

    def _take(self) -> list[BatchResult]:
        due = sorted((late for late in self._held if late.due <= self._turn), key=lambda x: x.rank)
        self._held = [late for late in self._held if late.due > self._turn]
        return [late.result for late in due]
