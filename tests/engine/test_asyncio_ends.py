"""How an engine behind asyncio ends: failures, drains, aborts, and where it cannot begin."""

import asyncio

import pytest
from fronting import (
    CONFIG,
    LONG,
    PACED,
    BrokenRunner,
    Fronted,
    HeldRunner,
    lengths,
    on_a_loop,
    params,
    read,
)

from rlt_fsm import AsyncEngine, ConfigError, Engine, EngineClosed, EventLog, LogError, RltError
from rlt_fsm.engine_thread import Closing
from runner import SimRunner

# ---- failures ----------------------------------------------------------------------------------


@on_a_loop
async def test_an_engine_that_stops_reaches_every_reader_as_one_clear_error():
    engine = Engine(BrokenRunner(batches=30), CONFIG)
    front = AsyncEngine(engine)
    streams = [read(front.generate(f"r{k}", [k + 1], params(LONG))) for k in range(12)]
    ends = await asyncio.gather(*streams, return_exceptions=True)
    assert all(isinstance(end, EngineClosed) for end in ends)
    (sentence,) = {str(end) for end in ends}
    assert sentence.startswith("the engine stopped at step 2")
    assert "ticket 7 was never here" in sentence
    assert len({id(end) for end in ends}) == 12  # each has a traceback of its own
    assert all(isinstance(end.__cause__, AssertionError) for end in ends)
    with pytest.raises(EngineClosed, match="ticket 7 was never here") as late:
        await read(front.generate("late", [1]))
    assert isinstance(late.value.__cause__, AssertionError)
    await front.close()


@on_a_loop
async def test_a_device_that_fails_a_batch_ends_its_requests_and_the_engine_goes_on():
    async with Fronted() as (front, case):
        case.runner.fail_next()
        outputs = await read(front.generate("a", [1], params()))
        assert outputs[-1].finish_reason == "error"
        assert (await read(front.generate("b", [1], params())))[-1].finish_reason == "length"


@on_a_loop
async def test_a_log_that_cannot_be_sealed_raises_where_the_front_is_closed(tmp_path):
    log = EventLog.open(tmp_path / "run.db")
    front = AsyncEngine(Engine(SimRunner(), CONFIG, log))
    await read(front.generate("a", [1], params()))
    log.close()
    with pytest.raises(LogError, match="the log is closed"):
        await front.close()


# ---- shutdown ----------------------------------------------------------------------------------


@on_a_loop
async def test_draining_lets_live_requests_end_and_takes_no_new_one():
    runner = HeldRunner()
    async with Fronted(runner=runner) as (front, case):
        readers = [
            asyncio.create_task(read(front.generate(name, [1, 2], params(9)))) for name in "ab"
        ]
        runner.hold()
        await asyncio.to_thread(runner.is_reached.wait)
        closing = asyncio.create_task(front.close(drain=True))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed, match="is being closed"):
            await read(front.generate("late", [1]))
        assert not closing.done()
        runner.go_on()
        await closing
        assert [(await reader)[-1].finish_reason for reader in readers] == ["length"] * 2
        with pytest.raises(EngineClosed, match="closed"):
            await read(front.generate("later", [1]))
    assert case.outcome == "drained"


@on_a_loop
async def test_closing_aborts_live_requests_with_one_last_output_each():
    async with Fronted() as (front, case):
        readers = [
            asyncio.create_task(read(front.generate(f"r{k}", [k + 1], params(LONG))))
            for k in range(12)
        ]
        await read(front.generate("short", [1], params(3)))
        await front.close()
        await front.close()  # once more changes nothing
        for outputs in await asyncio.gather(*readers):
            assert [output.finished for output in outputs].count(True) == 1
            assert outputs[-1].finish_reason == "abort"
    assert case.outcome == "closed"


@on_a_loop
async def test_a_drain_that_takes_too_long_can_be_cut_short():
    runner = HeldRunner()
    async with Fronted(runner=runner) as (front, case):
        reader = asyncio.create_task(read(front.generate("a", [1], params(LONG))))
        runner.hold()
        await asyncio.to_thread(runner.is_reached.wait)
        patient = asyncio.create_task(front.close(drain=True))
        await asyncio.sleep(0)
        hasty = asyncio.create_task(front.close())
        await asyncio.sleep(0)
        runner.go_on()
        await asyncio.gather(patient, hasty)
        assert (await reader)[-1].finish_reason == "abort"
    assert case.outcome == "closed"


@on_a_loop
async def test_closing_that_has_begun_to_abort_does_not_turn_into_a_drain():
    runner = HeldRunner()
    async with Fronted(runner=runner) as (front, _):
        reader = asyncio.create_task(read(front.generate("a", [1], params(40))))
        runner.hold()
        await asyncio.to_thread(runner.is_reached.wait)
        closings = [asyncio.create_task(front.close(drain=drain)) for drain in (False, True)]
        await asyncio.sleep(0)
        runner.go_on()
        await asyncio.gather(*closings)
        assert (await reader)[-1].finish_reason == "abort"


@on_a_loop
async def test_a_reader_that_is_gone_cannot_hold_up_a_drain():
    async with Fronted(max_unread=1, when_full="wait", drain_on_exit=True) as (front, case):
        unread = front.generate("a", [1], params(9))
        await anext(unread)
    assert case.outcome == "drained"
    assert lengths(await read(unread)) == [9]  # what was kept can still be read


@on_a_loop
async def test_an_exception_that_leaves_async_with_aborts_even_where_it_drains():
    case = Fronted(drain_on_exit=True, **PACED)

    async def serve():
        async with case as (front, _):
            stream = front.generate("a", [1], params(LONG))
            await anext(stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await serve()
    assert "abort" in case.triggers("a")


@on_a_loop
async def test_cancelling_a_drain_on_exit_aborts_and_leaves_the_engine_closed():
    runner = HeldRunner()
    case = Fronted(runner=runner, drain_on_exit=True, **PACED)
    is_leaving = asyncio.Event()

    async def serve():
        async with case as (front, _):
            stream = front.generate("a", [1], params(LONG))
            await anext(stream)
            runner.hold()
            is_leaving.set()

    task = asyncio.create_task(serve())
    await is_leaving.wait()
    task.cancel()
    await asyncio.sleep(0)
    runner.go_on()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert case.outcome == "closed"
    case.audit()


def test_a_front_that_nobody_closes_outlives_its_loop_in_silence():
    case = Fronted()

    async def main():
        front = AsyncEngine(case.engine)
        stream = front.generate("a", [1], params(LONG))
        await anext(stream)
        return front, stream

    front, _stream = asyncio.run(main())
    front._thread.stop(Closing.ABORT)
    front._thread.join()
    case.audit()


# ---- where it cannot work ----------------------------------------------------------------------


def test_a_front_is_made_in_a_coroutine():
    words = "make an AsyncEngine in a coroutine"
    with Engine(SimRunner(), CONFIG) as engine, pytest.raises(RltError, match=words):
        AsyncEngine(engine)


def test_a_front_belongs_to_one_loop():
    case = Fronted()

    async def main():
        front = AsyncEngine(case.engine)

        async def elsewhere():
            await read(front.generate("a", [1]))

        with pytest.raises(RltError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        await front.close()

    asyncio.run(main())
    case.audit()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_unread": 0}, "max_unread=0: must be a whole number of 1 or more"),
        ({"when_full": "drop"}, "when_full='drop': must be one of merge, wait"),
    ],
)
@on_a_loop
async def test_options_that_cannot_work_are_refused(options, words):
    with Engine(SimRunner(), CONFIG) as engine, pytest.raises(ConfigError, match=words):
        AsyncEngine(engine, **options)
