"""An engine behind asyncio: runners that a test holds or breaks, and logs that are audited."""

import asyncio
import threading
from functools import wraps

import told

import audit
from rlt_fsm import (
    AsyncEngine,
    CacheConfig,
    Engine,
    EngineConfig,
    EventLog,
    SamplingParams,
)
from runner import SimRunner

CONFIG = EngineConfig(cache=CacheConfig(num_blocks=8_192, block_size=16))


LONG = 2_000  # tokens: more than any test lets pass
PACED = {"when_full": "wait"}  # no engine runs ahead of its readers


def on_a_loop(test):
    """An async test: each has an event loop of its own."""

    @wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


def params(max_tokens=4, **others):
    return SamplingParams(max_tokens=max_tokens, exit_threshold=0.6, **others)


class HeldRunner(SimRunner):
    """A sim whose device stands still between `hold` and `go_on`."""

    def __init__(self):
        super().__init__()
        self._may_run = threading.Event()
        self._may_run.set()
        self.is_reached = threading.Event()  # a batch is on the device

    def hold(self):
        self._may_run.clear()

    def go_on(self):
        self._may_run.set()

    def collect(self):
        self.is_reached.set()
        self._may_run.wait()
        return super().collect()


class BrokenRunner(SimRunner):
    """A sim that shows us to be wrong, from its nth batch on."""

    def __init__(self, batches):
        super().__init__()
        self._left = batches

    def collect(self):
        self._left -= 1
        assert self._left > 0, "ticket 7 was never here"
        return super().collect()


class Fronted:
    """`async with Fronted() as (front, case)`: an engine and its log; audited in the end."""

    def __init__(self, *, config=CONFIG, runner=None, log=None, **options):
        self.log = log or EventLog.memory()
        self.runner = runner or SimRunner()
        self.engine = Engine(self.runner, config, self.log)
        self._options = options

    async def __aenter__(self):
        self.front = AsyncEngine(self.engine, **self._options)
        await self.front.__aenter__()
        return self.front, self

    async def __aexit__(self, *exc_info):
        await self.front.__aexit__(*exc_info)
        self.audit()

    def audit(self):
        report = audit.verify(self.log)
        assert (report.verdict, report.findings) == ("clean", [])
        assert self.engine.state.slots_held == 0

    def triggers(self, request_id):
        """What the log says of a request, in order."""
        refs = {row.ref for row in self.log.reader().requests(1) if row.request_id == request_id}
        return [trigger for trigger, row in told.events(self.log) if row.ref in refs]

    @property
    def outcome(self):
        (run,) = self.log.reader().runs()
        return run.outcome


def alone(prompt, own, config=CONFIG):
    """The last output of a request that has an engine for itself."""
    with Engine(SimRunner(), config) as engine:
        engine.add_request("alone", prompt, own)
        while engine.has_unfinished_requests():
            outputs = engine.step()
    return outputs[-1]


async def read(stream):
    """Every output of a generator."""
    return [output async for output in stream]


def lengths(outputs):
    return [len(output.token_ids) for output in outputs]
