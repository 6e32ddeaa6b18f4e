"""Hundreds of readers that come, lag, leave and are thrown out, while the engine is shut down.

A seed decides who does what after how many turns of the loop; how the two threads meet is chance.
Whatever it is: every reader ends, each has a prefix of what it gets alone, and the log is clean.
"""

import asyncio
from contextlib import aclosing
from random import Random

import pytest

import audit
from rlt_fsm import (
    AsyncEngine,
    CacheConfig,
    Engine,
    EngineClosed,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    ExitConfig,
    SamplingParams,
    SchedulerConfig,
)
from rlt_fsm.workload import Completion
from runner import SimRunner

READERS = 100
ENDINGS = ("all", "drain", "abort", "hasty", "drain", "all")  # by seed
FATES = ("read", "read", "read", "leave", "cancelled", "aborted")
ENDS = {
    "read": {"length"},
    "leave": {"length", "left"},
    "cancelled": {"length", "cancelled", "never came"},
    "aborted": {"length", "abort"},
}
# Whoever comes after the engine began to close is too late; who is there then may be aborted.
MORE_ENDS = {
    "all": set(),
    "drain": {"too late"},
    "abort": {"too late", "abort"},
    "hasty": {"too late", "abort"},
}


class Reader:
    """One request and what its reader will do, by seed."""

    def __init__(self, number, dice):
        self.request_id = f"r{number}"
        self.prompt = [1 + dice.randrange(511) for _ in range(dice.randint(1, 9))]
        self.params = SamplingParams(
            max_tokens=dice.randint(1, 12),
            exit_threshold=dice.choice((0.5, 0.8, 1.0)),
            priority=dice.randint(0, 2),
        )
        self.fate = dice.choice(FATES)
        self.comes_after = dice.randint(0, 300)  # turns of the loop
        self.patience = dice.randint(0, 4)  # outputs
        self.lag = dice.choice((0, 0, 1, 30))
        self.outputs = []
        self.end = "never came"

    async def run(self, front):
        await turns(self.comes_after)
        try:
            async with aclosing(
                front.generate(self.request_id, self.prompt, self.params)
            ) as stream:
                async for output in stream:
                    self.outputs.append(output)
                    if len(self.outputs) > self.patience and self.act(front):
                        break
                    await turns(self.lag)
            self.end = "left" if not self.outputs[-1].finished else self.outputs[-1].finish_reason
        except asyncio.CancelledError:
            self.end = "cancelled"
        except EngineClosed:
            self.end = "too late"

    def act(self, front):
        if self.fate == "aborted":
            front.abort(self.request_id)
        return self.fate == "leave"

    def check(self, whole, ending):
        assert self.end in ENDS[self.fate] | MORE_ENDS[ending]
        lengths = [len(output.token_ids) for output in self.outputs]
        # An abort's last output may have no more tokens than the one before.
        most = lengths[:-1] if self.end == "abort" else lengths
        assert most == sorted(set(most))
        assert lengths == sorted(lengths)
        for output in self.outputs:
            count = len(output.token_ids)
            assert output.token_ids == whole.token_ids[:count]
            assert output.exit_depths == whole.exit_depths[:count]
        assert [output.finished for output in self.outputs[:-1]].count(True) == 0
        if self.end == "length":
            assert lengths[-1] == self.params.max_tokens


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def config_of(dice, *, is_async):
    """Tight: whoever is urgent takes seats and blocks from others."""
    return EngineConfig(
        scheduler=SchedulerConfig(
            max_num_seqs=dice.choice((3, 6)), policy="priority", enable_preemption=True
        ),
        cache=CacheConfig(num_blocks=dice.choice((60, 90)), block_size=2),
        execution=ExecutionConfig(async_scheduling=is_async),
        exit=ExitConfig(mode="ouro_delayed"),
    )


def wholes(readers):
    """What every request gets where nothing disturbs it, by id."""
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=32, max_num_batched_tokens=512),
        cache=CacheConfig(num_blocks=4_096),
        exit=ExitConfig(mode="ouro_delayed"),
    )
    last = {}
    with Engine(SimRunner(), config) as engine:
        for reader in readers:
            engine.add_request(reader.request_id, reader.prompt, reader.params)
        while engine.has_unfinished_requests():
            last |= {output.request_id: output for output in engine.step()}
    return last


async def serve(front, readers, dice, ending):
    """Run every reader, cancel some, and close in the midst of it or after."""
    tasks = {reader: asyncio.create_task(reader.run(front)) for reader in readers}
    for reader in readers:
        if reader.fate == "cancelled":
            asyncio.create_task(cancel_after(dice.randint(0, 600), tasks[reader]))  # noqa: RUF006  # ends by itself
    if ending == "all":
        await asyncio.wait(tasks.values())
    else:
        await turns(dice.randint(100, 500))
    if ending == "hasty":
        drained = asyncio.create_task(front.close(drain=True))
        await turns(dice.randint(1, 50))
        await front.close()
        await drained
    else:
        await front.close(drain=ending == "drain")
    await asyncio.wait(tasks.values())
    assert {task.exception() for task in tasks.values() if not task.cancelled()} == {None}


async def cancel_after(count, task):
    await turns(count)
    task.cancel()


@pytest.mark.parametrize("seed", range(len(ENDINGS)))
def test_whoever_comes_and_goes_everyone_ends_with_the_right_tokens_and_a_clean_log(seed):
    dice = Random(seed)
    ending, is_async, waits = ENDINGS[seed], bool(seed % 2), seed // 2 % 2
    readers = [Reader(number, dice) for number in range(READERS)]
    completion = Completion(order="random", seed=seed, max_delay=2) if is_async else None
    log = EventLog.memory()

    async def main():
        engine = Engine(SimRunner(completion=completion), config_of(dice, is_async=is_async), log)
        front = AsyncEngine(
            engine, max_unread=dice.choice((1, 2, 16)), when_full=("merge", "wait")[waits]
        )
        await serve(front, readers, dice, ending)

    asyncio.run(main())
    expected = wholes(readers)
    for reader in readers:
        reader.check(expected[reader.request_id], ending)
    report = audit.verify(log)
    assert (report.verdict, report.findings) == ("clean", [])
