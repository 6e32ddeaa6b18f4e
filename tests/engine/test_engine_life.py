"""Aborting, failing, reusing ids and closing, at every point of a request's life."""

import re
from pathlib import Path

import numpy as np
import pytest
import told

import audit
from rlt_fsm import (
    Batch,
    BatchResult,
    CacheConfig,
    ConfigError,
    DeviceLost,
    Engine,
    EngineClosed,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    RequestOutput,
    RltError,
    SamplingParams,
    SchedulerConfig,
    WorkKey,
)
from runner import SimRunner

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=64, block_size=4))
PARAMS = SamplingParams(max_tokens=3, exit_threshold=0.6)


def triggers(log: EventLog, request_id: str) -> list[str]:
    refs = {row.ref for row in log.reader().requests(1) if row.request_id == request_id}
    return [trigger for trigger, row in told.events(log) if row.ref in refs]


def run(engine: Engine) -> list[RequestOutput]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


@pytest.mark.parametrize("steps", range(14))
def test_a_request_aborted_at_any_point_gives_one_last_output_and_everything_back(
    steps: int,
) -> None:
    log = EventLog.memory()
    with Engine(SimRunner(), CONFIG, log) as engine:
        engine.add_request("a", [1, 2, 3], PARAMS)
        engine.add_request("b", [4, 5], PARAMS)
        seen = [output for _ in range(steps) for output in engine.step()]
        was_live = "a" in engine.state.by_id
        assert engine.abort_request("a") is was_live
        assert engine.abort_request("a") is False
        rest = run(engine)
        assert engine.state.pool.free == 64
        assert engine.state.slots_held == 0
    last = [output for output in seen + rest if output.request_id == "a"][-1]
    assert last.finished
    assert last.finish_reason == ("abort" if was_live else "length")
    assert [t for t in triggers(log, "a") if t in {"abort", "finish", "retire"}] == [
        "abort" if was_live else "finish",
        "retire",
    ]
    assert [o.finish_reason for o in seen + rest if o.request_id == "b"][-1] == "length"


def test_aborting_the_only_request_leaves_its_last_output_to_be_fetched() -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("a", [1], PARAMS)
        engine.abort_request("a")
        assert engine.has_unfinished_requests()
        before = engine.current_step
        (output,) = engine.step()
        assert (output.finished, output.finish_reason, output.token_ids) == (True, "abort", [])
        assert engine.current_step == before
        assert not engine.has_unfinished_requests()


def test_an_unknown_id_is_not_aborted_and_leaves_no_event() -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        seq = engine.state.seq
        assert engine.abort_request("nobody") is False
        assert engine.state.seq == seq


def test_a_reused_id_is_its_next_generation_and_gets_its_own_tokens() -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("a", [1, 2, 3], PARAMS)
        first = run(engine)[-1]
        engine.add_request("a", [9, 9], PARAMS)
        second = run(engine)[-1]
        assert engine.state.generations.newest("a") == 2
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("other", [9, 9], PARAMS)
        assert run(engine)[-1].token_ids == second.token_ids
    assert first.prompt_token_ids != second.prompt_token_ids


def test_a_failing_device_ends_the_requests_of_its_batch_alone_and_the_engine_goes_on() -> None:
    runner = SimRunner()
    log = EventLog.memory()
    with Engine(runner, EngineConfig(scheduler=SchedulerConfig(max_num_seqs=1)), log) as engine:
        engine.add_request("a", [1, 2], PARAMS)
        engine.add_request("b", [3, 4], PARAMS)
        engine.step()
        runner.fail_next()
        outputs = run(engine)
    reasons = {o.request_id: o.finish_reason for o in outputs if o.finished}
    assert reasons == {"a": "error", "b": "length"}
    assert triggers(log, "a")[-2:] == ["finish", "retire"]


class LateRunner(SimRunner):
    """By the time its first result is read, the row it answers for belongs to another ticket."""

    engine: Engine

    def collect(self) -> list[BatchResult]:
        self.engine.state.by_id["a"].taken_ticket = 999
        return super().collect()


def test_a_result_for_another_ticket_is_dropped_and_changes_nothing() -> None:
    log = EventLog.memory()
    runner = LateRunner()
    engine = Engine(runner, EngineConfig(execution=ExecutionConfig(durability="step")), log)
    runner.engine = engine
    engine.add_request("a", [1, 2], PARAMS)
    assert engine.step() == []
    assert triggers(log, "a") == ["submit", "admit", "select", "drop"]
    request = engine.state.by_id["a"]
    assert (request.work, request.prefilled_tokens) == ("TAKEN:PROMPT_ATOMIC", 0)


def test_closing_aborts_what_is_live_and_a_closed_engine_says_so() -> None:
    log = EventLog.memory()
    engine = Engine(SimRunner(), CONFIG, log)
    engine.add_request("a", [1, 2], PARAMS)
    engine.step()
    engine.close()
    engine.close()
    (run_info,) = log.reader().runs()
    assert run_info.outcome == "closed"
    assert triggers(log, "a")[-2:] == ["abort", "retire"]
    with pytest.raises(EngineClosed, match="make a new one"):
        engine.step()
    with pytest.raises(EngineClosed):
        engine.add_request("b", [1], PARAMS)


def test_a_run_that_ends_by_itself_is_drained() -> None:
    log = EventLog.memory()
    with Engine(SimRunner(), CONFIG, log) as engine:
        engine.add_request("a", [1, 2], PARAMS)
        run(engine)
    assert log.reader().runs()[0].outcome == "drained"


def test_a_wrong_configuration_names_field_value_and_rule_before_anything_starts() -> None:
    log = EventLog.memory()
    with pytest.raises(ConfigError, match=r"scheduler.max_num_seqs=0: must be"):
        Engine(SimRunner(), EngineConfig(scheduler=SchedulerConfig(max_num_seqs=0)), log)
    assert log.reader().runs() == []


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"scheduler": {}}, "config='<builtins.dict>': must be an EngineConfig"),
        (EngineConfig(scheduler="mixed"), "scheduler='mixed': expected 'object', got 'str'"),  # type: ignore[arg-type]
        (
            EngineConfig(scheduler=SchedulerConfig(mode="mixd")),  # type: ignore[arg-type]
            "scheduler.mode='mixd': expected one of 'mixed', 'no_refill', 'refill'",
        ),
        (
            EngineConfig(scheduler=SchedulerConfig(max_num_seqs=2**70)),
            "scheduler.max_num_seqs=1180591620717411303424: must be",
        ),
        (EngineConfig(cache=CacheConfig(num_blocks=2**40)), "cache.num_blocks=1099511627776: must"),
        (
            EngineConfig(cache=CacheConfig(num_blocks=object())),  # type: ignore[arg-type]
            "cache.num_blocks='<builtins.object>': expected 'int | null', got 'str'",
        ),
        (
            EngineConfig(cache=CacheConfig(watermark_ratio=float("nan"))),
            "cache.watermark_ratio=nan: must be in",
        ),
    ],
)
def test_a_value_of_another_kind_is_a_wrong_configuration(config: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        Engine(SimRunner(), config)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers_in_a_configuration() -> None:
    seats: int = np.int64(3)  # type: ignore[assignment]
    with Engine(SimRunner(), EngineConfig(scheduler=SchedulerConfig(max_num_seqs=seats))) as engine:
        assert type(engine.config.scheduler.max_num_seqs) is int
        assert engine.config.scheduler.max_num_seqs == 3


class MeddlingRunner(SimRunner):
    """Calls its engine while that waits for a batch."""

    engine: Engine

    def collect(self) -> list[BatchResult]:
        results = super().collect()
        for call in (
            lambda: self.engine.add_request("inner", [1]),
            lambda: self.engine.abort_request("a"),
            self.engine.step,
            self.engine.close,
        ):
            with pytest.raises(RltError, match="in the middle of a call"):
                call()
        return results


def test_a_call_in_the_middle_of_a_call_is_refused_and_changes_nothing() -> None:
    log, runner = EventLog.memory(), MeddlingRunner()
    runner.engine = engine = Engine(runner, CONFIG, log)
    engine.add_request("a", [1, 2], PARAMS)
    assert run(engine)[-1].finish_reason == "length"
    engine.close()
    assert audit.verify(log).verdict == "clean"
    assert "inner" not in engine.state.generations


class Broken(SimRunner):
    """Answers for a ticket that was never submitted."""

    def collect(self) -> list[BatchResult]:
        super().collect()
        return [BatchResult(ticket=999)]

    last: Batch | None = None


def test_a_runner_that_answers_for_another_ticket_stops_the_engine_with_its_log_intact() -> None:
    log = EventLog.memory()
    engine = Engine(Broken(), CONFIG, log)
    engine.add_request("a", [1], PARAMS)
    with pytest.raises(AssertionError, match="ticket 999 where 0 was due"):
        engine.step()
    with pytest.raises(EngineClosed, match="stopped at step 0"):
        engine.step()
    assert log.reader().runs()[0].outcome == "running"


class LosesItsDevice(SimRunner):
    """Computes so many batches; then every call fails, as after a failed assertion in a kernel."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def submit(self, batch: Batch) -> None:
        self._left -= 1
        if self._left < 0:
            raise DeviceLost("cuda:0 failed for good")
        super().submit(batch)


def test_a_lost_device_stops_the_engine_and_another_process_can_go_on(tmp_path: Path) -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("a", [1, 2], PARAMS)
        expected = run(engine)[-1]
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        engine = Engine(LosesItsDevice(3), CONFIG, log)
        engine.add_request("a", [1, 2], PARAMS)
        with pytest.raises(DeviceLost, match="failed for good"):
            run(engine)
        for call in (engine.step, lambda: engine.add_request("b", [1], PARAMS)):
            with pytest.raises(EngineClosed, match=r"stopped at step 3.*failed for good"):
                call()
    with Engine.recover(path, SimRunner()) as engine:
        assert run(engine)[-1] == expected
    with EventLog.open_for_reading(path) as log:
        assert audit.verify(log).verdict == "clean"


def test_last_schedule_tells_what_ran() -> None:
    with Engine(SimRunner(), CONFIG) as engine:
        engine.add_request("a", [1, 2], PARAMS)
        engine.step()
        assert engine.last_schedule is not None
        assert engine.last_schedule.batch is not None
        assert engine.last_schedule.batch.works == (WorkKey.PROMPT_ATOMIC,)
