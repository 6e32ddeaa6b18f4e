"""Metrics equal what the log's views say: on any workload, written or read, at every moment."""

import json
import sqlite3
import subprocess
import sys
from bisect import bisect_left
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlt_fsm import Engine, EventLog, SamplingParams
from rlt_fsm.config import from_mapping
from rlt_fsm.counts import SECONDS
from rlt_fsm.drive import drive
from rlt_fsm.metrics import Histogram, Metrics
from rlt_fsm.prometheus import Collector
from rlt_fsm.prompts import script
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload

ROOT = Path(__file__).parents[2]
# Offloads, rewinds, yields, refusals, aborts, failures, several tickets in flight.
EVENTFUL = (8, 38, 55, 57, 90, 104)


def runner_of(workload):
    return SimRunner(
        depths=workload.depths, vocab_size=workload.vocab_size, script=script(workload),
        max_model_len=workload.max_model_len, completion=workload.completion,
    )  # fmt: skip


def run_workload(log, seed):
    workload = random_workload(seed)
    runner = runner_of(workload)
    with Engine(runner, workload.config, log) as engine:
        drive(engine, workload, runner_faults=runner)


class Views:
    """What the public views of one run say."""

    def __init__(self, path):
        self._db = sqlite3.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._db.close()

    def all(self, sql):
        return self._db.execute(sql).fetchall()

    def one(self, sql):
        return self.all(sql)[0][0]

    def pairs(self, sql):
        return dict(self.all(sql))

    def histogram(self, sql):
        times = [ns / 1e9 for (ns,) in self.all(sql)]
        counts = Counter(bisect_left(SECONDS, seconds) for seconds in times)
        return tuple(counts[place] for place in range(len(SECONDS) + 1)), sum(times)


def same(histogram, counted):
    counts, total = counted
    assert histogram.counts == counts
    assert histogram.total == pytest.approx(total)


ENDED = "SELECT finish_reason, count(*) FROM request WHERE finish_reason NOT NULL GROUP BY 1"
REFUSED = (
    "SELECT substr(reason, 1, instr(reason || ' ', ' ') - 1), count(*) FROM refusal GROUP BY 1"
)
PREEMPTED = """SELECT "trigger", count(*) FROM event
WHERE "trigger" IN ('yield', 'offload', 'offload_resident', 'rewind') GROUP BY 1"""
OUTPUT_TIMES = """SELECT o.*, e.t_ns AS t_ns, s.t_ns AS submitted_ns,
    lag(e.t_ns) OVER (PARTITION BY o.request_id, o.generation ORDER BY o.idx) AS before_ns
FROM output o JOIN event e ON e.seq = o.seq
JOIN request r USING (request_id, generation) JOIN event s ON s.seq = r.submitted_seq"""
WHOLE = """SELECT f.t_ns - s.t_ns FROM request r JOIN event s ON s.seq = r.submitted_seq
JOIN event f ON f.request_id = r.request_id AND f.generation = r.generation
WHERE f.status_to = 'FINISHED'"""


def assert_as_the_views_say(now, path):
    with Views(path) as views:
        assert now.events == views.one("SELECT count(*) FROM event")
        assert now.steps == views.one("SELECT count(*) FROM step")
        assert now.requests_submitted == views.one("SELECT count(*) FROM request")
        assert now.requests_finished == views.pairs(ENDED)
        assert now.requests_refused == views.pairs(REFUSED)
        depths = "SELECT exit_depth, count(*) FROM output GROUP BY 1"
        assert now.outputs_by_exit_depth == views.pairs(depths)
        for told, column in (
            (now.batches, "count(*)"), (now.batch_rows, "sum(rows)"),
            (now.batch_tokens, "sum(tokens)"),
        ):  # fmt: skip
            assert told == views.pairs(f"SELECT operation, {column} FROM batch GROUP BY 1")
        assert now.preemptions == views.pairs(PREEMPTED)
        fails = "SELECT count(*) FROM event WHERE \"trigger\" = '{}'"
        assert now.batches_failed == views.one(fails.format("fail_batch"))
        assert now.results_dropped == views.one(fails.format("drop"))
        first = f"SELECT t_ns - submitted_ns FROM ({OUTPUT_TIMES}) WHERE before_ns IS NULL"
        between = f"SELECT t_ns - before_ns FROM ({OUTPUT_TIMES}) WHERE before_ns NOT NULL"
        same(now.seconds_to_first_output, views.histogram(first))
        same(now.seconds_between_outputs, views.histogram(between))
        same(now.seconds_to_finish, views.histogram(WHOLE))
        done = "SELECT t_completed_ns - t_submitted_ns FROM batch WHERE t_completed_ns NOT NULL"
        same(now.batch_seconds, views.histogram(done))


def assert_gauges_as_the_views_say(now, path):
    with Views(path) as views:
        columns = "waiting, slots_held, blocks_free, blocks_prefix_only, host_blocks"
        (step,) = views.all(f"SELECT {columns} FROM step ORDER BY step DESC LIMIT 1")
        assert (
            now.waiting, now.slots_held, now.blocks_free, now.blocks_prefix_only, now.host_blocks,
        ) == step  # fmt: skip
        live = "SELECT count(*) FROM request WHERE finish_reason IS NULL"
        assert now.requests_live == views.one(live)
        flying = "SELECT count(*) FROM batch WHERE retired_seq IS NULL"
        assert now.tickets_in_flight == views.one(flying)


@pytest.mark.parametrize("seed", EVENTFUL)
def test_counting_while_writing_gives_what_the_views_say(tmp_path, seed):
    metrics, path = Metrics(), tmp_path / "run.db"
    with metrics.counting(EventLog.open(path)) as log:
        run_workload(log, seed)
    assert_as_the_views_say(metrics.snapshot(), path)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_any_workload_is_counted_as_the_views_say(tmp_path_factory, seed):
    metrics, path = Metrics(), tmp_path_factory.mktemp("any") / "run.db"
    with metrics.counting(EventLog.open(path)) as log:
        run_workload(log, seed)
        written = metrics.snapshot()
    assert_as_the_views_say(written, path)
    read = Metrics()
    with EventLog.open_for_reading(path) as log:
        read.read(log)
    assert read.snapshot() == written


@pytest.mark.parametrize("seed", EVENTFUL)
def test_gauges_are_right_in_the_middle_and_reading_catches_up_with_writing(tmp_path, seed):
    path, workload = tmp_path / "run.db", random_workload(seed)
    written, read = Metrics(), Metrics()
    execution = replace(workload.config.execution, durability="group")  # "off" shows nobody
    config = replace(workload.config, execution=execution)
    runner = runner_of(workload)
    looks = []

    def look(steps, _ended):
        if steps % 7 == 0:
            engine._recorder.commit()  # the next group may be some steps away
            read.read(log)
            looks.append(written.snapshot())
            assert read.snapshot() == looks[-1]
            assert_as_the_views_say(looks[-1], path)
            assert_gauges_as_the_views_say(looks[-1], path)

    with written.counting(EventLog.open(path)) as log:
        with Engine(runner, config, log) as engine:
            drive(engine, workload, runner_faults=runner, on_step=look)
        read.read(log)
        assert read.snapshot() == written.snapshot()
    assert len(looks) > 3


def test_gauges_go_with_their_run_and_counters_stay():
    metrics = Metrics()
    with metrics.counting(EventLog.memory()) as one, metrics.counting(EventLog.memory()) as other:
        first, second = (Engine(SimRunner(), log=log) for log in (one, other))
        for engine in (first, second):
            engine.add_request("a", [1, 2], SamplingParams(max_tokens=4))
            engine.step()
        assert metrics.snapshot().slots_held == 2
        assert metrics.snapshot().requests_live == 2
        first.close()
        assert metrics.snapshot().slots_held == 1
        assert metrics.snapshot().requests_finished == {"abort": 1}
        second.close()
    assert metrics.snapshot().blocks_free == 0
    assert metrics.snapshot().requests_submitted == 2


def test_a_run_that_goes_on_after_a_crash_is_counted_whole(tmp_path):
    path = tmp_path / "run.db"
    config = from_mapping({"execution": {"durability": "step"}})
    with EventLog.open(path) as log:
        engine = Engine(SimRunner(), config, log)
        for name in ("a", "b"):
            engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=4))
        for _ in range(9):
            engine.step()
    metrics = Metrics()
    with metrics.counting(EventLog.open(path)) as log:
        engine = Engine.recover(log, SimRunner())
        while engine.has_unfinished_requests():
            engine.step()
        engine.close()
    now = metrics.snapshot()
    assert now.preemptions == {"rewind": 2}
    assert_as_the_views_say(now, path)


def test_an_empty_log_is_nothing():
    metrics = Metrics()
    metrics.read(EventLog.memory())
    assert metrics.snapshot() == Metrics().snapshot()
    assert Histogram((1.0,), (2, 3), 9.0).count == 5


# ---- Prometheus ----------------------------------------------------------------------------------


def exposed(metrics, **options):
    """Samples by (name, labels), as a server's parser reads them."""
    registry = CollectorRegistry()
    registry.register(Collector(metrics, **options))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("seed", EVENTFUL)
def test_prometheus_reads_what_the_snapshot_says(seed):
    metrics = Metrics()
    with metrics.counting(EventLog.memory()) as log:
        run_workload(log, seed)
    now, samples = metrics.snapshot(), exposed(metrics)
    assert samples["rlt_fsm_events_total", ()] == now.events
    assert samples["rlt_fsm_requests_submitted_total", ()] == now.requests_submitted
    for name, values in (
        ("requests_finished", now.requests_finished), ("requests_refused", now.requests_refused),
        ("batches", now.batches), ("batch_rows", now.batch_rows),
        ("batch_tokens", now.batch_tokens), ("preemptions", now.preemptions),
    ):  # fmt: skip
        told = {key[1][0]: value for key, value in samples.items()
                if key[0] == f"rlt_fsm_{name}_total"}  # fmt: skip
        assert told == values
    at_most = 0
    for depth in range(1, max(now.outputs_by_exit_depth, default=0) + 1):
        at_most += now.outputs_by_exit_depth.get(depth, 0)
        assert samples["rlt_fsm_output_exit_depth_bucket", (f"{depth}.0",)] == at_most
    assert samples["rlt_fsm_output_exit_depth_count", ()] == at_most
    first = now.seconds_to_first_output
    assert samples["rlt_fsm_time_to_first_output_seconds_count", ()] == first.count
    assert samples["rlt_fsm_time_to_first_output_seconds_sum", ()] == pytest.approx(first.total)
    assert samples["rlt_fsm_time_to_first_output_seconds_bucket", ("0.001",)] == first.counts[0]


def test_a_collector_refreshes_before_each_look(tmp_path):
    with EventLog.open(tmp_path / "run.db") as log:
        run_workload(log, 38)
    metrics = Metrics()
    with EventLog.open_for_reading(tmp_path / "run.db") as log:
        samples = exposed(metrics, refresh=lambda: metrics.read(log), prefix="mine")
    assert samples["mine_events_total", ()] == metrics.snapshot().events > 0


def test_without_prometheus_client_a_sentence_says_what_to_install():
    script = "import sys; sys.modules['prometheus_client'] = None; import rlt_fsm.prometheus"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == (
        "rlt_fsm.errors.RltError: rlt_fsm.prometheus needs prometheus_client, which is not "
        "installed: pip install 'rlt-fsm[prometheus]'"
    )


def test_an_engine_that_is_not_counted_loads_neither_metrics_nor_prometheus():
    script = (
        "import json, sys; import rlt_fsm, runner.cli\n"
        "print(json.dumps([m for m in sys.modules if 'metrics' in m or 'prometheus' in m]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert [name for name in json.loads(done.stdout) if name.startswith(("rlt_fsm", "prom"))] == []
