"""The workloads of `rlt-fsm simulate`, broken off at random events: every mode, pool and policy."""

from random import Random

import msgspec
import pytest
from recovery.cuts import first_events

import audit
from rlt_fsm import Engine, EventLog
from rlt_fsm.drive import drive
from rlt_fsm.events import Aborted, Finished, OutputSampled, Submitted
from rlt_fsm.replay import recorded
from runner.sim import SimRunner
from runner.simulate_workloads import random_workload

MOST_STEPS = 4000


def _sim(workload):
    return SimRunner.of(workload)


def _durable(config):
    execution = msgspec.structs.replace(config.execution, durability="group")
    return msgspec.structs.replace(config, execution=execution)


def _outputs_and_cut_short(log):
    """By ref: the tokens and depths of every request; and who was aborted or met a fault."""
    outputs, cut_short = {}, set()
    for fact, *_ in recorded(log.reader(), 1):
        match fact:
            case Submitted():
                outputs[fact.ref] = []
            case OutputSampled():
                outputs[fact.ref].append((fact.idx, fact.token_id, fact.exit_depth))
            case Aborted() | Finished(finish_reason="error"):
                cut_short.add(fact.ref)
    return outputs, cut_short


@pytest.mark.parametrize("seed", range(24))
def test_a_random_run_broken_off_anywhere_ends_the_same_and_clean(seed):
    workload, whole = random_workload(seed), EventLog.memory()
    runner = _sim(workload)
    with Engine(runner, _durable(workload.config), whole) as engine:
        drive(engine, workload, runner_faults=runner)
    expected, cut_short = _outputs_and_cut_short(whole)
    last_seq = whole.reader().runs()[0].last_seq
    random = Random(seed)
    for count in sorted(random.sample(range(1, last_seq), min(3, last_seq - 1))):
        log = first_events(whole, count)
        with Engine.recover(log, _sim(workload)) as engine:
            for _ in range(MOST_STEPS):
                if not engine.has_unfinished_requests():
                    break
                engine.step()
            assert not engine.has_unfinished_requests(), count
        report = audit.verify(log)
        assert report.ok, (count, report.findings[:3])
        got, _ = _outputs_and_cut_short(log)
        for ref, outputs in got.items():
            if ref in cut_short:  # nobody aborts it this time: it goes on
                assert outputs[: len(expected[ref])] == expected[ref][: len(outputs)], count
            else:
                assert outputs == expected[ref], count
