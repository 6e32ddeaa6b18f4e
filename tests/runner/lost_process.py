"""A process whose life on a CUDA device ends early: `python lost_process.py END DB ASYNC`.

END is `kill`, by a signal in the middle of the run, or `assert`, by a failed assertion in a kernel;
the latter prints the class of each error that it met.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from small_runs import config, requests

from rlt_fsm import Engine, EventLog, RltError
from runner.torch_runner import TorchRunner

BATCHES = 15  # before the end


class Ending(TorchRunner):
    """Comes to its end with one batch of the run."""

    def __init__(self, end):
        super().__init__("demo", device="cuda", dtype="float32")
        self._end = end
        self._left = BATCHES

    def submit(self, batch):
        self._left -= 1
        if self._left == 0:
            self._end()
        super().submit(batch)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail_an_assertion():
    """Read outside a table, on the device: the host does not wait to hear of it."""
    table = torch.zeros(4, device="cuda")
    table[torch.tensor([99], device="cuda")].add_(1)


def main(end, db, *, is_async):
    runner = Ending({"kill": kill, "assert": fail_an_assertion}[end])
    settings = config(is_async=is_async, execution={"cuda_graphs": True})
    engine = Engine(runner, settings, EventLog.open(Path(db)))
    for name, prompt, params in requests():
        engine.add_request(name, prompt, params)
    calls = [engine.step] * (10 * BATCHES) + [lambda: engine.add_request("late", [1])]
    for call in calls:
        try:
            call()
        except RltError as error:
            sys.stdout.write(f"{type(error).__name__} {error}\n".replace("\n", " ").strip() + "\n")
            sys.stdout.flush()
    # A lost device is beyond tidying up: leave without.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], is_async=sys.argv[3] == "async")
