"""A serving process that kills itself with SIGKILL at a given place: `python -m recovery.dying`.

Arguments: the log, the durability, the place (`after-add`, `after-step` or `in-batch`), how many
steps before, how many rows, how many milliseconds a batch takes, and how many a COMMIT beside the
engine takes (0: none is left to a thread). Prints, as the last thing, the seq of the last event of
the steps that had ended and the seq of the last event of all.
"""

import os
import signal
import sys
import time

import structlog
from sqlalchemy import RootTransaction

from rlt_fsm import CacheConfig, Engine, EngineConfig, EventLog, SamplingParams, SchedulerConfig
from rlt_fsm.batch import BatchResult
from rlt_fsm.config import ExecutionConfig
from rlt_fsm.log import sql_transactions
from rlt_fsm.log.sql_transactions import Transactions
from runner.sim import SimRunner

OUTPUTS = 400


class Dying:
    """Says how far an engine has come, and ends the process."""

    engine: Engine | None = None

    def die(self) -> None:
        """Now."""
        assert self.engine is not None
        rows = self.engine.last_events
        sys.stdout.write(f"{rows[-1][0] if rows else 0} {self.engine.state.seq}\n")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


class Device(SimRunner):
    """Takes its time, and may be where the process dies: when batch `dies_in` is waited for."""

    def __init__(self, dying: Dying, *, milliseconds: float, dies_in: int) -> None:
        super().__init__(max_model_len=OUTPUTS + 8, check=False)
        self._dying, self._seconds, self._left = dying, milliseconds / 1e3, dies_in

    def collect(self) -> list[BatchResult]:
        """See SimRunner."""
        if not self._left:
            self._dying.die()
        self._left -= 1
        time.sleep(self._seconds)
        return super().collect()


def slow_disk(seconds: float) -> None:
    """From now on commits that may be left to a thread are, and take so long there."""
    store = Transactions._store  # nothing else is as slow as a slow disk

    def slowly(self: Transactions, transaction: RootTransaction) -> None:
        time.sleep(seconds)
        store(self, transaction)

    Transactions._store = slowly  # type: ignore[method-assign]
    sql_transactions.SLOW_IN_A_ROW = 0  # type: ignore[misc]


def main() -> None:
    """Serve until the end comes."""
    path, durability, place, steps, rows, milliseconds, commit_ms = sys.argv[1:]
    if float(commit_ms):
        slow_disk(float(commit_ms) / 1e3)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=int(rows), max_num_batched_tokens=8 * int(rows)),
        cache=CacheConfig(num_blocks=104 * int(rows)),
        execution=ExecutionConfig(durability=durability),
    )
    dying = Dying()
    dies_in = int(steps) if place == "in-batch" else -1
    with EventLog.open(path) as log:
        device = Device(dying, milliseconds=float(milliseconds), dies_in=dies_in)
        engine = dying.engine = Engine(device, config, log)
        for number in range(int(rows)):
            engine.add_request(str(number), [1, 2, 3], SamplingParams(max_tokens=OUTPUTS))
        if place == "after-add":
            dying.die()
        while place == "in-batch" or engine.current_step < int(steps):
            engine.step()
        dying.die()


if __name__ == "__main__":
    main()
