"""RecordedRunner: answers every batch from the log of an earlier run. No model, no tensors.

It leaves the loop at the recorded exit depth, samples the recorded token, and fails the batch of a
step whose batch was failed. What the log does not hold (an output that the recorded run never came
to) runs to full depth and is token 0, noted `unrecorded` in the new log.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from rlt_fsm import config as configs
from rlt_fsm.batch import Batch, BatchResult, BlockTable, ModelFacts, RequestSpec, Row
from rlt_fsm.config import EngineConfig
from rlt_fsm.engine import Engine
from rlt_fsm.errors import ConfigError, WorkloadError
from rlt_fsm.log import EventLog
from rlt_fsm.log.port import EventStore
from rlt_fsm.record import Answer, Crashed, Record, read_record
from rlt_fsm.redrive import OnStep, redrive
from rlt_fsm.states import Operation, WorkKey
from rlt_fsm.workload import parse, to_json

from .sim import resolved

UNRECORDED = "unrecorded"
_BEYOND = Answer(token_id=0, logprob=None, note=UNRECORDED)


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a re-drive: the new run's number, and where it went beyond the record.

    `unrecorded` has the output indices of each request (`id#generation`) that no record answered.
    `cut_off`: requests were still live when nothing had been given for very many steps.
    """

    run_id: int
    unrecorded: Mapping[str, list[int]]
    cut_off: bool


class Redrive:
    """A re-drive of a recorded run that can be made; nothing is written before `run`.

    Args:
        source: the log of the run.
        run_id: its number.
        settings: `section.field` → value, on top of the recorded configuration.

    Raises:
        ConfigError: settings that cannot be used.
        LogError: the run cannot be read.
    """

    def __init__(self, source: EventStore, run_id: int, settings: Mapping[str, str]) -> None:
        self._record = read_record(source, run_id)
        self._config = configs.validate(configs.override(self._record.config, settings))
        _require_recoverable(self._config, self._record)
        RecordedRunner(self._record).start(self._config)
        self._has_verdicts = self._record.has_verdicts or bool(settings)

    def run(self, target: EventLog, on_step: OnStep | None = None) -> Redriven:
        """Drive today's engine through the record and log it in `target`.

        Raises:
            LogError: the new log cannot be written.
        """
        runner = RecordedRunner(self._record)
        engine = Engine(
            runner,
            self._config,
            target,
            workload=_workload(self._record, self._config),
            verdicts=self._has_verdicts,
        )
        runner.follow(lambda: engine.current_step)
        cut_off = redrive(engine, self._record, on_step=on_step)
        return Redriven(run_id=engine.run_id, unrecorded=runner.unrecorded, cut_off=cut_off)


def _require_recoverable(config: EngineConfig, record: Record) -> None:
    """Raise ConfigError where a recorded crash would leave nothing to go on from."""
    crashes = [call.step for call in record.calls if isinstance(call, Crashed)]
    if crashes and config.execution.durability == "off":
        raise ConfigError(
            "execution.durability='off' writes no log to recover from, and the recorded run "
            f"crashed (before step {crashes[0]}): replay it with 'group' or 'step'"
        )


def _workload(record: Record, config: EngineConfig) -> str | None:
    """The workload that the record came from, under the configuration of the new run."""
    if record.workload is None:
        return None
    try:
        return to_json(replace(parse(record.workload), config=config))
    except WorkloadError:  # another version's: what it says, this one cannot
        return None


class RecordedRunner:
    """The model of a recorded run, as far as the record goes."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.fallback = record.fallback
        self._depths = record.model.depths
        self._results: dict[int, BatchResult] = {}  # by ticket, in the order of submission
        self._place = {ticket: place for place, ticket in enumerate(record.landings)}
        self._is_async = self._exits_late = False
        self._step: Callable[[], int] = lambda: record.last_step
        self.unrecorded: dict[str, list[int]] = {}  # `id#generation` → output indices

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """The recorded model's facts, with the planes that the layout in `config` needs."""
        self._results.clear()  # a crash took them
        record = self._record
        outside = record.model.planes - self._loop_planes(record.config)  # of other layers
        facts = replace(record.model, planes=self._loop_planes(config) + outside)
        complete = resolved(config, facts)
        self._is_async = complete.execution.async_scheduling
        self._exits_late = complete.exit.mode == "ouro_delayed"
        return facts, complete

    def _loop_planes(self, config: EngineConfig) -> int:
        return 1 if config.cache.layout == "shared" else self._depths

    # ---- batches -----------------------------------------------------------------------------

    def follow(self, step: Callable[[], int]) -> None:
        """Whom to ask for the step that goes on: results come in the steps in which they came."""
        self._step = step

    def submit(self, batch: Batch) -> None:
        """Look the answers up; raises an error of the recorded class where the device failed."""
        landed = self._record.landings.get(batch.ticket)
        if not self._is_async:
            failure = self._record.failures.get(batch.step)
        else:
            failure = None if landed is None else landed.refusal_at(batch.step)
        if failure is not None:
            raise type(failure, (Exception,), {})("the recorded device failed this step's batch")
        self._results[batch.ticket] = self._answered(batch)

    def _answered(self, batch: Batch) -> BatchResult:
        landed = self._record.landings.get(batch.ticket)
        if self._is_async and landed is not None and landed.error is not None:
            return BatchResult(batch.ticket, error=landed.error)
        if batch.operation is Operation.CODA:
            return self._sample(batch)
        if WorkKey.DECODE_RECURRENT in batch.works:
            exits = [
                row.work is WorkKey.DECODE_RECURRENT and self._leaves(row) for row in batch.rows
            ]
            return BatchResult(batch.ticket, exits=exits)
        return BatchResult(batch.ticket)

    def collect(self) -> list[BatchResult]:
        """The results of this step; beyond the record, that of the oldest batch."""
        assert self._results, "collect() with nothing in flight would wait for ever"
        return self.poll() or [self._results.pop(min(self._results))]

    def poll(self) -> list[BatchResult]:
        """The results that the recorded run had by this step, in its order of completion."""
        now = self._step()
        landings = self._record.landings
        due = [t for t in self._results if t in landings and landings[t].step <= now]
        due.sort(key=self._place.__getitem__)
        return [self._results.pop(ticket) for ticket in due]

    def _leaves(self, row: Row) -> bool:
        name = row.spec.request_id, row.spec.generation
        exit_depth = self._record.exits[name].get(row.output_idx, self._depths)
        told = 2 if self._exits_late else 1  # a late gate tells of the loop after this one
        return row.loops_done + told >= exit_depth

    def _sample(self, batch: Batch) -> BatchResult:
        answers = [self._answer(row) for row in batch.rows]
        tokens, logprobs, notes = zip(*answers, strict=True)
        return BatchResult(batch.ticket, token_ids=tokens, logprobs=logprobs, notes=notes)

    def _answer(self, row: Row) -> Answer:
        request_id, generation = row.spec.request_id, row.spec.generation
        recorded = self._record.answers[request_id, generation]
        if row.output_idx < len(recorded):
            return recorded[row.output_idx]
        self.unrecorded.setdefault(f"{request_id}#{generation}", []).append(row.output_idx)
        return _BEYOND

    # ---- requests: nothing is kept for any ---------------------------------------------------

    def park(self, spec: RequestSpec, state_row: int) -> None:
        """Nothing to keep."""

    def unpark(self, spec: RequestSpec, state_row: int) -> None:
        """Nothing to bring back."""

    def offload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Nothing to copy."""

    def reload(self, spec: RequestSpec, block_table: BlockTable) -> None:
        """Nothing to bring back."""

    def release(self, spec: RequestSpec) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to give back."""
