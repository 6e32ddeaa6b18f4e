"""A workload out of a recorded run gives the sim what the run was given."""

from pathlib import Path

from random_runs import random_run

from rlt_fsm import EventLog, SamplingParams
from rlt_fsm.record import read_record
from rlt_fsm.recorded_workload import workload_of
from rlt_fsm.workload import parse, to_json
from runner import LLM
from runner.simulate_check import run_logged


def test_a_recorded_run_gives_the_sim_the_same_again() -> None:
    same = 0
    for seed in range(30):
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        workload = workload_of(read_record(log, 1))
        assert parse(to_json(workload)) == workload
        with EventLog.memory() as again:
            run_logged(workload, again, check=True)
            same += again.reader().runs()[0].digest == log.reader().runs()[0].digest
    # In the others somebody is aborted in the step in which somebody came, and after it.
    assert same > 20


def test_a_run_of_a_model_becomes_a_workload_with_its_depths(tmp_path: Path) -> None:
    with LLM("demo", db=tmp_path / "demo.db") as llm:
        params = SamplingParams(exit_threshold=0.9, min_loops=1)
        outputs = llm.generate(["27+58=", "8+5="], params)
    with EventLog.open_for_reading(tmp_path / "demo.db") as log:
        workload = workload_of(read_record(log, 1))
    with EventLog.memory() as log:
        assert run_logged(workload, log, check=True) is None
        assert len(log.reader().requests(1)) == 2
    for request, output in zip(workload.requests, outputs, strict=True):
        assert request.prompt == tuple(output.prompt_token_ids)
        assert list(request.params.exit_depths or ())[: len(output.exit_depths)] == list(
            output.exit_depths
        )
