"""An engine's state is the fold of its log, also of a log whose moves another version numbered."""

import pytest
from folding import differences

from rlt_fsm import (
    Engine,
    EngineConfig,
    EventLog,
    IllegalTransition,
    LogError,
    RequestRefused,
    SamplingParams,
)
from rlt_fsm.config import CacheConfig, ExecutionConfig, SchedulerConfig
from rlt_fsm.log.memory import MemoryLog
from rlt_fsm.replay import fold, recorded
from runner.sim import SimRunner

TIGHT = EngineConfig(
    scheduler=SchedulerConfig(
        policy="priority", enable_preemption=True, max_num_seqs=2, prefill_chunk_size=2
    ),
    cache=CacheConfig(
        num_blocks=24,
        block_size=2,
        incremental_allocation=True,
        enable_prefix_caching=True,
        host_snapshot_blocks=8,
    ),
    execution=ExecutionConfig(atomic_prefill=False),
)


def busy_engine(log, config=TIGHT):
    """An engine with more to do than fits, stepped until every kind of thing has happened."""
    engine = Engine(SimRunner(), config, log)
    for i in range(6):
        params = SamplingParams(max_tokens=6, priority=-i, exit_threshold=0.6, seed=i)
        engine.add_request(f"r{i % 5}" if i < 5 else "late", [7] * (i + 1), params)
        for _ in range(5):
            engine.step()
    return engine


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_fold_of_what_is_committed_is_the_live_state(where, tmp_path):
    log = EventLog.memory() if where == "memory" else EventLog.open(tmp_path / "run.db")
    with log, busy_engine(log) as engine:
        engine.abort_request("r1")  # commits everything so far
        assert len(engine.state.by_ref) > 2
        assert differences(engine) == {}


def test_the_fold_starts_from_the_resolved_configuration():
    with EventLog.memory() as log, Engine(SimRunner(max_model_len=64), log=log) as engine:
        folded = fold(log, engine.run_id)
    assert folded.config == engine.config
    assert folded.pool.num_blocks == engine.config.cache.num_blocks


def test_each_run_of_a_log_is_folded_alone():
    with EventLog.memory() as log:
        first = busy_engine(log)
        first.close()
        with Engine(SimRunner(), log=log) as second:
            second.add_request("r1", [1, 2])
            second.step()
        assert fold(log, first.run_id).as_dict() == first.state.as_dict()
        assert fold(log, second.run_id).as_dict() == second.state.as_dict()


class Renumbered:
    """A log as another version would have numbered its moves."""

    name = "renumbered"

    def __init__(self, log):
        self._reader = log.reader()

    def reader(self):
        return self

    def moves(self, run_id):
        return [row._replace(move=1000 - row.move) for row in self._reader.moves(run_id)]

    def requests(self, run_id):
        return self._reader.requests(run_id)

    def checkpoint(self, run_id):
        return self._reader.checkpoint(run_id)

    def events(self, run_id, after_seq=0):
        for row in self._reader.events(run_id, after_seq):
            yield (*row[:5], 1000 - row[5], *row[6:])


def test_moves_are_matched_by_their_texts():
    with EventLog.memory() as log, busy_engine(log) as engine:
        engine.abort_request("r1")
        assert fold(Renumbered(log), engine.run_id).as_dict() == engine.state.as_dict()


def test_the_facts_of_a_log_come_with_their_place():
    with EventLog.memory() as log, busy_engine(log) as engine:
        engine.close()
        facts = list(recorded(log.reader(), engine.run_id))
    assert [item.seq for item in facts] == list(range(1, engine.state.seq + 1))
    assert (facts[0].step, facts[0].fact.trigger) == (0, "open")
    assert facts[-1].fact.trigger == "close"
    first = next(item for item in facts if item.fact.trigger == "submit_batch")
    assert (first.step, first.ticket) == (0, 0)


def test_a_run_that_is_not_there_is_a_log_error():
    with pytest.raises(LogError, match="run 3 does not begin with `open`"):
        fold(EventLog.memory(), 3)


class Missing(Renumbered):
    """A log with a move that no version of ours declares."""

    def moves(self, run_id):
        return [row._replace(trigger=row.trigger + "?") for row in super().moves(run_id)]


def test_an_unknown_move_is_a_log_error():
    with EventLog.memory() as log:
        run_id = busy_engine(log).run_id
        with pytest.raises(LogError, match="seq 1: this version has no such move"):
            fold(Missing(log), run_id)


class Tampered(MemoryLog):
    """A log without its admissions."""

    def reader(self):
        reader = super().reader()
        moves = {row.move for row in reader.moves(1) if row.trigger == "admit"}
        rows = [row for row in reader.events(1) if row[5] not in moves]
        reader.events = lambda *_: iter(rows)
        return reader


def test_a_log_that_leaves_out_a_move_does_not_fold():
    log = Tampered()
    engine = Engine(SimRunner(), log=log)
    engine.add_request("a", [1, 2])
    engine.step()
    engine.abort_request("a")
    with pytest.raises(IllegalTransition):
        fold(log, engine.run_id)


@pytest.mark.parametrize(
    "params",
    [{"max_tokens": "x"}, {"stop_token_ids": ("a",)}, {"exit_depths": (4, None)}, {"top_k": 1.5}],
    ids=str,
)
def test_a_request_refused_for_a_parameters_type_is_read_back_as_it_was_given(params):
    with EventLog.memory() as log, Engine(SimRunner(), log=log) as engine:
        with pytest.raises(RequestRefused):
            engine.add_request("a", [1], SamplingParams(**params))
        read = [fact for fact, *_ in recorded(log.reader(), engine.run_id)]
    assert read[-1].spec.params == SamplingParams(**params)
