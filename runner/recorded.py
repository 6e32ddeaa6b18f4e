"""RecordedRunner: answers every batch from the log of an earlier run. No model, no tensors.

It leaves the loop at the recorded exit depth, samples the recorded token, and fails the batch of a
step whose batch was failed. What the log does not hold (an output that the recorded run never came
to) runs to full depth and is token 0, noted `unrecorded` in the new log.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from rlt_fsm import config as configs
from rlt_fsm.batch import Batch, BatchResult, BlockTable, ModelFacts, RequestSpec, Row
from rlt_fsm.config import EngineConfig
from rlt_fsm.engine import Engine
from rlt_fsm.errors import WorkloadError
from rlt_fsm.log import EventLog
from rlt_fsm.log.port import EventStore
from rlt_fsm.record import Answer, Record, read_record
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
        cut_off = redrive(engine, self._record, on_step=on_step)
        return Redriven(run_id=engine.run_id, unrecorded=runner.unrecorded, cut_off=cut_off)


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
        self._depths = record.model.depths
        self._results: list[BatchResult] = []
        self.unrecorded: dict[str, list[int]] = {}  # `id#generation` → output indices

    def start(self, config: EngineConfig) -> tuple[ModelFacts, EngineConfig]:
        """The recorded model's facts, with the planes that the layout in `config` needs."""
        self._results.clear()
        self.unrecorded.clear()
        planes = 1 if config.cache.layout == "shared" else self._depths
        facts = replace(self._record.model, planes=planes)
        return facts, resolved(config, facts)

    # ---- batches -----------------------------------------------------------------------------

    def submit(self, batch: Batch) -> None:
        """Look the answers up; raises an error of the recorded class where the device failed."""
        failure = self._record.failures.get(batch.step)
        if failure is not None:
            raise type(failure, (Exception,), {})("the recorded device failed this step's batch")
        if batch.operation is Operation.CODA:
            self._results.append(self._sample(batch))
        elif WorkKey.DECODE_RECURRENT in batch.works:
            exits = [
                row.work is WorkKey.DECODE_RECURRENT and self._leaves(row) for row in batch.rows
            ]
            self._results.append(BatchResult(batch.ticket, exits=exits))
        else:
            self._results.append(BatchResult(batch.ticket))

    def collect(self) -> list[BatchResult]:
        """All results, in submission order."""
        assert self._results, "collect() with nothing in flight would wait for ever"
        return self.poll()

    def poll(self) -> list[BatchResult]:
        """The results that the recorded run had at this point."""
        results, self._results = self._results, []
        return results

    def _leaves(self, row: Row) -> bool:
        name = row.spec.request_id, row.spec.generation
        exit_depth = self._record.exits[name].get(row.output_idx, self._depths)
        return row.loops_done + 1 >= exit_depth

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
