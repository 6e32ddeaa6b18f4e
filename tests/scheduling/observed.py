"""An engine on SimRunner whose batches and events are written down as short lines.

A batch is its works and its rows in order: `PROMPT_ATOMIC a[0:4) b[0:2)`, `DECODE_RECURRENT a@1`,
where `@` is the 0-based depth. An event is its trigger and its request: `yield b`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import audit
from rlt_fsm import Engine, EventLog, RequestOutput, Row, SamplingParams, WorkKey
from rlt_fsm.config import from_mapping
from rlt_fsm.log.port import EventRow
from rlt_fsm.moves import MOVES
from rlt_fsm.state import Request
from rlt_fsm.states import PROMPT_WORKS
from runner.sim import SimRunner

MOST_STEPS = 2_000


class Observed:
    """One engine, and everything that it has done."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.batches: list[str] = []
        self.results: dict[str, RequestOutput] = {}  # the newest of each id
        self.finished: list[str] = []  # ids, in the order of their ends

    def add(self, name: str, prompt: int | list[int], outputs: int = 1, **params: object) -> None:
        """Submit a request; a number is the length of a prompt of its own."""
        if isinstance(prompt, int):
            prompt = [1 + (sum(name.encode()) + place) % 200 for place in range(prompt)]
        params = {"min_loops": 1, **params}
        self.engine.add_request(name, prompt, SamplingParams(max_tokens=outputs, **params))

    def step(self, times: int = 1) -> str:
        """Run some steps; return the last one's batch."""
        for _ in range(times):
            for output in self.engine.step():
                self.results[output.request_id] = output
                if output.finished:
                    self.finished.append(output.request_id)
            schedule = self.engine.last_schedule
            batch = schedule.batch if schedule else None
            rows = [] if batch is None else [_row(row) for row in batch.rows]
            self.batches.append(" ".join([_works(batch), *rows]))
        return self.batches[-1]

    def until(self, name: str, work: str) -> None:
        """Run until a request is in this state of work or status."""
        for _ in range(MOST_STEPS):
            request = self.request(name)
            if work in {request.work, request.status}:
                return
            self.step()
        raise AssertionError(f"{name} never became {work}")

    def drain(self) -> None:
        """Run until nothing is left to do."""
        start = len(self.batches)
        while self.engine.has_unfinished_requests():
            assert len(self.batches) - start < MOST_STEPS, self.batches[-8:]
            self.step()

    def request(self, name: str) -> Request:
        """A live request."""
        return self.engine.state.by_id[name]

    @property
    def waiting(self) -> list[str]:
        """The waiting requests in their order."""
        return [request.spec.request_id for request in self.engine.state.waiting]

    @property
    def active(self) -> list[str]:
        """The requests that hold a slot, in the order of their arrival."""
        every = self.engine.state.by_ref.values()
        return [request.spec.request_id for request in every if request.slot == "HELD"]

    @property
    def free(self) -> int:
        """Blocks that nobody holds, the prefix cache neither."""
        return self.engine.state.pool.free

    def rows(self, *triggers: str) -> list[tuple[str, EventRow]]:
        """The events with one of these triggers, each with the id of its request."""
        reader = self.engine.log.reader()
        run = self.engine.run_id
        names = {row.ref: row.request_id for row in reader.requests(run)}
        rows = map(EventRow._make, reader.events(run))
        return [(names.get(row.ref, ""), row) for row in rows if trigger(row) in triggers]

    def events(self, *triggers: str) -> list[str]:
        """The events with one of these triggers as lines."""
        return [f"{trigger(row)} {name}".strip() for name, row in self.rows(*triggers)]

    def verdicts(self) -> list[str]:
        """Every verdict: its request and its reason."""
        return [f"{name}: {row.reason}" for name, row in self.rows("verdict")]


def trigger(row: EventRow) -> str:
    """An event's trigger as the log shows it."""
    return MOVES[row.move].trigger.partition(":")[0]


def _works(batch: object) -> str:
    return "nothing" if batch is None else "+".join(batch.works)


def _row(row: Row) -> str:
    text = row.spec.request_id
    if row.work in PROMPT_WORKS:
        text += f"[{row.token_start}:{row.token_start + row.token_count})"
    return text if row.depth is None else f"{text}@{row.depth}"


@contextmanager
def observed(
    *, scheduler=None, cache=None, execution=None, depths=4, script=None, is_audited=True
) -> Iterator[Observed]:
    """An engine for a test. At the end it is drained; then nothing is held and the log is clean.

    An audit costs as much as some hundred steps: who makes many short runs may do without.
    """
    config = from_mapping(
        {
            "scheduler": scheduler or {},
            "cache": {"num_blocks": 400, "block_size": 2, **(cache or {})},
            "execution": {"durability": "step", **(execution or {})},
        }
    )
    log = EventLog.memory()
    with Engine(SimRunner(depths=depths, script=script), config, log) as engine:
        seen = Observed(engine)
        yield seen
        seen.drain()
        state = engine.state
        assert state.pool.obtainable == state.pool.num_blocks
        assert (state.slots_held, state.host_blocks, len(state.waiting)) == (0, 0, 0)
        assert not any(state.queues[key] for key in WorkKey)
    assert not is_audited or audit.verify(log).findings == []


SPLIT = {"atomic_prefill": False}
URGENT = {"policy": "priority", "enable_preemption": True}
