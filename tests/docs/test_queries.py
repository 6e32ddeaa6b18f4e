"""The queries of `how-to/query-the-log.md` on other runs than the page's own: most of their answers
are counted again from raw events, without SQL.
"""

import sqlite3
from pathlib import Path

import msgspec
import pytest
from counting import COUNTED, Answer, Run

from docs.generate.queries import datasette_metadata, queries
from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import drive
from rlt_fsm.prompts import script
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload

QUERIES = {query.title: query for query in queries()}
# Between them: offloads, rewinds, yields, refusals, aborts, failures, several tickets in flight.
SEEDS = (8, 38, 55, 57, 90, 104)
# What asks for a request of the page's own run, or for two runs.
OF_THE_PAGE = ("Why a request waited", "A request's", "Which blocks", "Two runs")


def make_run(path: Path, seed: int) -> None:
    workload = random_workload(seed)
    runner = SimRunner(
        depths=workload.depths, vocab_size=workload.vocab_size, script=script(workload),
        max_model_len=workload.max_model_len, completion=workload.completion,
    )  # fmt: skip
    with EventLog.open(path) as log, Engine(runner, workload.config, log) as engine:
        drive(engine, workload, runner_faults=runner)


@pytest.fixture(scope="module", params=SEEDS)
def run_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "run.db"
    make_run(path, request.param)
    return path


def ask(path: Path, title: str) -> Answer:
    with sqlite3.connect(path) as db:
        rows = db.execute(QUERIES[title].sql).fetchall()
    db.close()
    return rows


def test_there_are_twenty_queries_and_most_are_counted_independently():
    assert len(QUERIES) == len(queries()) >= 20
    assert COUNTED.keys() <= QUERIES.keys()
    assert len(COUNTED) >= len(QUERIES) / 2


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_runs_on_any_log(run_path, title):
    ask(run_path, title)


@pytest.mark.parametrize("title", COUNTED)
def test_a_querys_answer_is_what_counting_the_events_gives(run_path, title):
    assert ask(run_path, title) == COUNTED[title](Run(run_path))


def test_some_run_gives_every_query_an_answer(tmp_path):
    unanswered = {title for title in QUERIES if not title.startswith(OF_THE_PAGE)}
    for seed in SEEDS:
        path = tmp_path / f"{seed}.db"
        make_run(path, seed)
        for title in sorted(unanswered):
            if any(cell not in (None, 0) for row in ask(path, title) for cell in row):
                unanswered.remove(title)
    assert unanswered == set(), "take other seeds"


def test_datasette_is_handed_the_same_queries():
    metadata = msgspec.json.decode(datasette_metadata())
    canned = metadata["databases"]["run"]["queries"]
    assert [(entry["title"], entry["sql"]) for entry in canned.values()] == list(QUERIES.values())
