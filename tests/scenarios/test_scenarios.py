"""Every scenario file: what runs today does what it expects and is clean; the rest says why not.

The files in `data/` are distilled from bug reports of serving engines. A feature that lands moves
from NOT_HERE to the engine, and its scenarios begin to run.
"""

from pathlib import Path

import pytest
from scenario_runs import NOT_HERE, run

import audit
from rlt_fsm import ConfigError, EventLog
from rlt_fsm.config import validate
from rlt_fsm.drive import check
from rlt_fsm.workload import load, needs, parse, to_json

FILES = sorted((Path(__file__).parent / "data").glob("*.json"))


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def scenario(request):
    return request.param


def test_there_are_scenarios():
    assert len(FILES) == 26


def test_a_scenario_does_what_it_expects_and_its_log_is_clean(scenario, tmp_path):
    workload = load(scenario)
    if missing := sorted(needs(workload) & NOT_HERE):
        pytest.skip(f"needs {', '.join(missing)}")
    db = tmp_path / "run.db"
    with EventLog.open(db) as log:
        result = run(workload, log)
    assert check(workload.expect, result) == []
    report = audit.verify(db)
    assert report.findings == []
    assert report.verdict == "clean"


def test_a_scenario_runs_the_same_twice(scenario):
    workload = load(scenario)
    if missing := sorted(needs(workload) & NOT_HERE):
        pytest.skip(f"needs {', '.join(missing)}")
    digests = []
    for _ in range(2):
        with EventLog.memory() as log:
            run(workload, log)
            digests.append(log.reader().runs()[0].digest)
    assert digests[0] == digests[1]


def test_a_scenario_is_skipped_exactly_when_the_engine_refuses_its_config(scenario):
    workload = load(scenario)
    if needs(workload) & NOT_HERE:
        with pytest.raises(ConfigError, match=r"runs? in this version"):
            validate(workload.config)
    else:
        validate(workload.config)


def test_a_scenario_survives_being_written_and_read_again(scenario):
    workload = load(scenario)
    assert parse(to_json(workload)) == workload


def test_every_request_of_a_scenario_has_an_expected_end(scenario):
    workload = load(scenario)
    expect = workload.expect
    named = {*expect.finish, *expect.abort, *expect.refuse}
    assert {name.partition("#")[0] for name in named} == {r.id for r in workload.requests}
