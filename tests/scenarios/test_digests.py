"""A schedule changes only on purpose: the digests of all these runs are pinned.

A digest covers each event, row, output and block of a run, in order. When a change to the scheduler
is meant, look at it with the auditor first, then pin the new digests:

    python tests/scenarios/test_digests.py
"""

import json
from pathlib import Path

from scenario_runs import can_run, run

from rlt_fsm import EventLog
from rlt_fsm.workload import load

HERE = Path(__file__).parent
FILES = sorted((*(HERE / "data").glob("*.json"), *(HERE / "moves").glob("*.json")))
PINNED = HERE / "digests.json"


def digests():
    """The digest of each run by its file's name."""
    found = {}
    for file in FILES:
        workload = load(file)
        if can_run(workload):
            with EventLog.memory() as log:
                run(workload, log)
                found[file.stem] = log.reader().runs()[0].digest
    return found


def test_every_schedule_is_the_one_that_is_pinned():
    assert digests() == json.loads(PINNED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PINNED.write_text(json.dumps(digests(), indent=1) + "\n", encoding="utf-8")
