"""Workloads run in memory, and their logs as short lines."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import DriveResult, drive
from rlt_fsm.workload import FORMAT, parse, to_json
from runner.sim import SimRunner


class Driven(NamedTuple):
    """A workload that was run to its end."""

    result: DriveResult
    lines: list[str]  # "step trigger request#generation", tickets without a name
    digest: str
    stored: str

    def of(self, *triggers: str) -> list[str]:
        """The lines of some triggers."""
        return [line for line in self.lines if line.split()[1] in triggers]


@pytest.fixture
def workload_text() -> Callable[..., str]:
    """A valid file with two requests; keyword arguments replace its top-level keys."""

    def make(**changes: Any) -> str:
        base = {
            "format": FORMAT,
            "config": {"scheduler": {"max_num_seqs": 2}, "cache": {"block_size": 4}},
            "max_model_len": 64,
            "requests": [
                {"id": "a", "prompt_len": 5, "max_tokens": 3},
                {"id": "b", "prompt": [1, 2, 3], "max_tokens": 2},
            ],
        }
        return json.dumps(base | changes)

    return make


@pytest.fixture
def run_workload(workload_text: Callable[..., str]) -> Callable[..., Driven]:
    """Run `workload_text(**changes)` on SimRunner and a log in memory."""

    def run(**changes: Any) -> Driven:
        workload = parse(workload_text(**changes))
        runner = SimRunner.of(workload)
        with EventLog.memory() as log:
            with Engine(runner, workload.config, log, workload=to_json(workload)) as engine:
                result = drive(engine, workload, runner_faults=runner)
            reader = log.reader()
            (info,) = reader.runs()
            triggers = {move.move: move.trigger for move in reader.moves(info.run_id)}
            names = {
                ref: f" {request_id}#{generation}"
                for ref, request_id, generation in reader.requests(info.run_id)
            }
            lines = [
                f"{event[1]} {triggers[event[5]]}{names.get(event[4], '')}"
                for event in reader.events(info.run_id)
            ]
            assert info.digest is not None
            return Driven(result, lines, info.digest, info.workload or "")

    return run
