"""A sim whose results come when the test says so, and an engine on it."""

import told

import audit
from rlt_fsm import Engine, EngineConfig, EventLog, SamplingParams
from rlt_fsm.batch import Batch, BatchResult
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

FORCED = (4, 2, 2, 2, 2, 2, 2, 2)


def config(*, max_in_flight=3, scheduler=None, cache=None, mode=None):
    sections = {
        "scheduler": scheduler or {},
        "cache": cache or {"num_blocks": 64, "block_size": 4},
        "execution": {
            "async_scheduling": True,
            "max_in_flight": max_in_flight,
            "durability": "step",
        },
        "exit": {"mode": mode},
    }
    return from_mapping(sections)


def forced(max_tokens=4, **params):
    return SamplingParams(max_tokens=max_tokens, exit_depths=FORCED[:max_tokens], **params)


class LateRunner(SimRunner):
    """Batches are computed when submitted; `complete(ticket)` lets a result be seen. Where the
    engine must wait and nothing was completed, the oldest batch is.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.in_flight: dict[int, BatchResult] = {}
        self.batches: dict[int, Batch] = {}
        self.released: list[str] = []
        self._seen: list[int] = []

    def start(self, config: EngineConfig):
        self.in_flight.clear()
        return super().start(config)

    def submit(self, batch: Batch) -> None:
        super().submit(batch)
        (self.in_flight[batch.ticket],) = super().collect()
        self.batches[batch.ticket] = batch

    def complete(self, *tickets: int) -> None:
        self._seen += tickets

    def fail(self, ticket: int) -> None:
        """The device fails a batch in flight."""
        self.in_flight[ticket] = BatchResult(ticket, error="device-error kind=Lost")
        self.complete(ticket)

    def poll(self) -> list[BatchResult]:
        seen, self._seen = self._seen, []
        return [self.in_flight.pop(ticket) for ticket in seen if ticket in self.in_flight]

    def collect(self) -> list[BatchResult]:
        if not self._seen:
            self.complete(min(self.in_flight))
        return self.poll()

    def release(self, spec) -> None:
        self.released.append(spec.request_id)
        super().release(spec)


class Run:
    """An engine on a LateRunner and its log."""

    def __init__(self, settings=None, **options):
        self.log = EventLog.memory()
        self.runner = LateRunner(**options)
        self.engine = Engine(self.runner, settings or config(), self.log)
        self.outputs = []

    def step(self, *completed):
        """Let batches be completed, take a step; the outputs it brought."""
        self.runner.complete(*completed)
        outputs = self.engine.step()
        self.outputs += outputs
        return outputs

    def step_until(self, work):
        """Step, completing nothing that is not waited for, until a batch of `work` is in flight."""
        for _ in range(50):
            newest = max(self.runner.in_flight, default=None)
            if newest is not None and work in self.runner.batches[newest].works:
                return newest
            self.step()
        raise AssertionError(f"no batch of {work}")

    def drain(self):
        for _ in range(500):
            if not self.engine.has_unfinished_requests():
                return self
            self.step()
        raise AssertionError("not drained")

    def finish(self):
        """Drain, close, and hold the log against every invariant."""
        self.drain()
        self.engine.close()
        assert audit.verify(self.log).findings == []
        return self

    def events(self, *triggers):
        """(trigger, request id, ticket) of the log's events, in order."""
        names = {row.ref: row.request_id for row in self.log.reader().requests(1)}
        return [
            (trigger, names.get(row.ref), row.ticket)
            for trigger, row in told.events(self.log)
            if not triggers or trigger in triggers
        ]
