"""Readers of an engine behind `async for`: outputs, refusals, who leaves and who is behind."""

import asyncio
from contextlib import aclosing

import pytest
from fronting import LONG, PACED, Fronted, HeldRunner, alone, lengths, on_a_loop, params, read

from rlt_fsm import RequestRefused

# ---- outputs -----------------------------------------------------------------------------------


def test_a_stream_yields_every_token_as_it_comes_and_ends_with_the_request():
    async def main():
        async with Fronted() as (front, _):
            return await read(front.generate("a", [1, 2, 3], params(6)))

    outputs = asyncio.run(main())
    assert lengths(outputs) == [1, 2, 3, 4, 5, 6]
    assert [output.finished for output in outputs] == [False] * 5 + [True]
    assert outputs[-1].token_ids == alone([1, 2, 3], params(6)).token_ids
    assert outputs[-1].exit_depths == alone([1, 2, 3], params(6)).exit_depths


def test_many_tasks_share_one_engine_and_each_gets_what_it_gets_alone():
    prompts = {f"r{k}": [k + 1, 2, 3] for k in range(24)}

    async def main():
        async with Fronted() as (front, _):
            streams = [read(front.generate(name, p, params(5))) for name, p in prompts.items()]
            return await asyncio.gather(*streams)

    for prompt, outputs in zip(prompts.values(), asyncio.run(main()), strict=True):
        assert outputs[-1].token_ids == alone(prompt, params(5)).token_ids


def test_the_loop_runs_on_while_a_batch_is_on_the_device():
    async def main():
        runner = HeldRunner()
        async with Fronted(runner=runner) as (front, _):
            runner.hold()
            reader = asyncio.create_task(read(front.generate("a", [1], params())))
            await asyncio.to_thread(runner.is_reached.wait)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not reader.done()
            runner.go_on()  # only a loop that is not blocked gets here
            return await reader

    assert asyncio.run(main())[-1].finished


@on_a_loop
async def test_nothing_is_submitted_before_the_first_output_is_asked_for():
    async with Fronted() as (front, case):
        stream = front.generate("a", [1], params())
        await stream.aclose()
    assert case.triggers("a") == []


# ---- refusals ----------------------------------------------------------------------------------


@on_a_loop
async def test_a_refusal_raises_in_its_caller_is_recorded_and_hurts_nobody_else():
    async with Fronted() as (front, case):
        good = asyncio.create_task(read(front.generate("good", [1], params())))
        with pytest.raises(RequestRefused, match="outside the vocabulary"):
            await read(front.generate("bad", [9_999], params()))
        assert (await good)[-1].finish_reason == "length"
    assert case.triggers("bad") == ["refuse"]


@on_a_loop
async def test_a_live_id_is_refused_and_its_first_owner_goes_on():
    async with Fronted(**PACED) as (front, _):
        stream = front.generate("a", [1], params(LONG))
        await anext(stream)
        with pytest.raises(RequestRefused, match="'a' refused") as caught:
            await read(front.generate("a", [1], params()))
        assert caught.value.code == "duplicate"
        assert not (await anext(stream)).finished


@on_a_loop
async def test_a_second_owner_that_leaves_before_it_is_refused_does_not_end_the_first():
    runner = HeldRunner()
    async with Fronted(runner=runner, **PACED) as (front, _):
        first = front.generate("a", [1], params(40))
        await anext(first)
        runner.hold()
        second = asyncio.create_task(read(front.generate("a", [2], params())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        runner.go_on()
        assert (await read(first))[-1].finish_reason == "length"


@on_a_loop
async def test_what_is_no_prompt_raises_in_its_caller_alone():
    async with Fronted() as (front, _):
        with pytest.raises(TypeError):
            await read(front.generate("a", 5))
        assert (await read(front.generate("b", [5])))[-1].finished


# ---- readers that go ---------------------------------------------------------------------------


@on_a_loop
async def test_closing_a_stream_early_aborts_its_request():
    async with Fronted(**PACED) as (front, case):
        stream = front.generate("a", [1], params(LONG))
        async with aclosing(stream):
            async for output in stream:
                if len(output.token_ids) >= 3:
                    break
        assert await read(stream) == []
    assert case.triggers("a")[-2:] == ["abort", "retire"]


@on_a_loop
async def test_a_loop_that_is_left_without_closing_aborts_too():
    async with Fronted(**PACED) as (front, case):
        async for _ in front.generate("a", [1], params(LONG)):
            break
        other = await read(front.generate("b", [2], params()))
        assert other[-1].finished
    assert "abort" in case.triggers("a")


@on_a_loop
async def test_cancelling_the_task_that_reads_aborts_its_request_and_no_other():
    async with Fronted(**PACED) as (front, case):
        is_reading = asyncio.Event()

        async def reader():
            async for _ in front.generate("a", [1], params(LONG)):
                is_reading.set()

        task = asyncio.create_task(reader())
        other = asyncio.create_task(read(front.generate("b", [2], params(30))))
        await is_reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await other)[-1].finish_reason == "length"
    assert "abort" in case.triggers("a")
    assert "abort" not in case.triggers("b")


@on_a_loop
async def test_an_id_that_is_used_again_at_once_never_gets_the_end_of_the_one_before():
    async with Fronted(**PACED) as (front, case):
        stream = front.generate("a", [1], params(LONG))
        await anext(stream)
        await stream.aclose()  # the abort and the next add cross together
        again = await read(front.generate("a", [7, 8], params(3)))
        assert lengths(again) == [1, 2, 3]
        assert again[-1].token_ids == alone([7, 8], params(3)).token_ids
    assert case.triggers("a").count("retire") == 2


@on_a_loop
async def test_abort_gives_the_reader_one_last_output_with_what_there_was():
    async with Fronted(**PACED) as (front, case):
        outputs = []
        async for output in front.generate("a", [1], params(LONG)):
            outputs.append(output)
            if len(outputs) == 3:
                front.abort("a")
                front.abort("a")
                front.abort("nobody")
    assert [output.finish_reason for output in outputs[:3]] == [None] * 3
    assert outputs[-1].finish_reason == "abort"
    assert lengths(outputs) == sorted(lengths(outputs))
    assert case.triggers("a").count("abort") == 1


# ---- readers that are behind -------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_reader_that_is_behind_misses_outputs_but_no_token_and_holds_nobody_up(most):
    async def main():
        async with Fronted(max_unread=most) as (front, _):
            slow = front.generate("slow", [1], params(9))
            first = await anext(slow)
            other = await read(front.generate("other", [2], params(60)))
            assert other[-1].finished  # by now the slow one has ended too
            return [first, *await read(slow)]

    outputs = asyncio.run(main())
    assert len(outputs) <= 1 + most
    assert lengths(outputs) == sorted(set(lengths(outputs)))
    assert outputs[-1].finished
    assert outputs[-1].token_ids == alone([1], params(9)).token_ids


@on_a_loop
async def test_an_engine_that_waits_for_readers_shows_each_of_them_every_output():
    async with Fronted(max_unread=2, when_full="wait") as (front, case):
        other = asyncio.create_task(read(front.generate("other", [2], params(12))))
        seen = []
        async for output in front.generate("slow", [1], params(12)):
            seen.append(len(output.token_ids))
            for _ in range(20):
                await asyncio.sleep(0)
            request = case.engine.state.by_id.get("slow")
            assert request is None or len(request.outputs) <= seen[-1] + 2
        assert seen == list(range(1, 13))
        assert lengths(await other) == list(range(1, 13))


@on_a_loop
async def test_a_reader_that_goes_no_longer_holds_the_engine_up():
    async with Fronted(max_unread=1, when_full="wait") as (front, _):
        slow = front.generate("slow", [1], params(LONG))
        await anext(slow)
        while not front._thread._full:  # noqa: ASYNC110  # no event tells that the engine waits
            await asyncio.sleep(0)
        other = asyncio.create_task(read(front.generate("other", [2], params(8))))
        await asyncio.sleep(0)
        await slow.aclose()
        assert lengths(await other) == list(range(1, 9))
