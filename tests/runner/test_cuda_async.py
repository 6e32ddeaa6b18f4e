"""Asynchronous execution, failures and recovery on a CUDA device; skipped where there is none."""

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from driving import tiny_model
from small_runs import WAYS, completions, config, ends_of, finish, requests, serve
from told import triggers

import audit
from rlt_fsm import (
    AsyncEngine,
    CacheConfig,
    Engine,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    SamplingParams,
    SchedulerConfig,
)
from runner.torch_runner import TorchRunner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GRAPHS = {"cuda_graphs": True}
HERE = Path(__file__).resolve().parent


def on_cuda():
    return TorchRunner("demo", device="cuda", dtype="float32")


@pytest.fixture(scope="module")
def on_a_cpu():
    return completions(TorchRunner("demo", device="cpu"), config(is_async=False))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_every_mode_gives_the_tokens_and_depths_of_a_cpu(way, is_async, on_a_cpu):
    settings = config(is_async=is_async, execution=GRAPHS, **WAYS[way])
    with EventLog.memory() as log:
        with Engine(on_cuda(), settings, log) as engine:
            assert engine.config.execution.cuda_graphs
            found = ends_of(serve(engine))
        assert audit.verify(log).findings == []
        if way == "starved" and not is_async:
            assert {"yield", "offload", "resume"} <= set(triggers(log))
    assert found == on_a_cpu


@pytest.mark.parametrize("execution", [{}, {"attention_backend": "torch"}], ids=str)
def test_without_graphs_and_without_kernels_too(execution, on_a_cpu):
    assert completions(on_cuda(), config(is_async=True, execution=execution)) == on_a_cpu


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("execution", [{}, GRAPHS], ids=str)
def test_a_device_that_is_not_the_first_computes_the_same(execution, on_a_cpu):
    runner = TorchRunner("demo", device="cuda:1", dtype="float32")
    assert completions(runner, config(is_async=True, execution=execution)) == on_a_cpu


@pytest.mark.parametrize("steps", [1, 7, 16])
def test_an_abort_while_batches_are_in_flight_changes_nobody_elses_tokens(steps, on_a_cpu):
    with EventLog.memory() as log:
        with Engine(on_cuda(), config(is_async=True, execution=GRAPHS), log) as engine:
            for name, prompt, params in requests():
                engine.add_request(name, prompt, params)
            found = {}
            for _ in range(steps):
                found |= {output.request_id: output for output in engine.step()}
            assert engine.abort_request("b")
            found = ends_of(found | finish(engine))
        assert audit.verify(log).findings == []
    tokens, depths, reason = found.pop("b")
    assert reason == "abort"
    assert (tokens, depths) == tuple(own[: len(tokens)] for own in on_a_cpu["b"][:2])
    assert found == {name: end for name, end in on_a_cpu.items() if name != "b"}


def test_an_engine_behind_asyncio_runs_on_a_thread_of_its_own(on_a_cpu):
    async def one(front, name, prompt, params):
        async for output in front.generate(name, prompt, params):
            last = output
        return name, last

    async def everybody():
        engine = Engine(on_cuda(), config(is_async=True, execution=GRAPHS))
        async with AsyncEngine(engine) as front:
            return dict(await asyncio.gather(*(one(front, *own) for own in requests())))

    assert ends_of(asyncio.run(everybody())) == on_a_cpu


def test_a_batch_is_over_when_the_device_has_come_past_it():
    """A prompt too, of which the host needs nothing."""
    with Engine(on_cuda(), config(is_async=True, execution=GRAPHS)) as engine:
        engine.add_request("a", [5, 6, 7], SamplingParams(max_tokens=2))
        torch.cuda._sleep(2 * 10**9)  # cycles: about a second
        engine.step()
        assert len(engine.state.tickets) == 1
        finish(engine)
        assert not engine.state.tickets


# ---- failures ----------------------------------------------------------------------------------


@contextmanager
def no_more_memory():
    """The device has none left for this process: all that the allocator still had is taken."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    held = []
    for size in (2**20, 2**16, 2**12, 2**9):
        with suppress(torch.OutOfMemoryError):
            while True:
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_batch_without_memory_fails_alone_and_the_engine_goes_on():
    loaded = tiny_model(seed=2)
    loaded.model.to("cuda")
    wide = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=128),
        cache=CacheConfig(num_blocks=512, block_size=4),
        execution=ExecutionConfig(attention_backend="torch", async_scheduling=True),
    )
    with EventLog.memory() as log:
        with Engine(TorchRunner(loaded), wide, log) as engine:
            engine.add_request("before", [1, 2, 3], SamplingParams(max_tokens=3))
            before = finish(engine)["before"]
            engine.add_request("during", list(range(50)) * 2, SamplingParams(max_tokens=3))
            with no_more_memory():
                during = finish(engine)["during"]
            engine.add_request("after", [1, 2, 3], SamplingParams(max_tokens=3))
            after = finish(engine)["after"]
        assert audit.verify(log).findings == []
    assert during.finish_reason == "error"
    assert (after.token_ids, after.finish_reason) == (before.token_ids, "length")


def ended(end, db, *, is_async):
    """What the process of `lost_process.py` printed."""
    kind = "async" if is_async else "sync"
    roots = [str(HERE), str(HERE.parent), str(HERE.parents[1])]
    return subprocess.run(
        [sys.executable, str(HERE / "lost_process.py"), end, str(db), kind],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def recovered(db):
    """The ends of those that had not ended, once this process has gone on with the run."""
    with Engine.recover(db, on_cuda()) as engine:
        found = finish(engine)
    with EventLog.open_for_reading(db) as log:
        assert audit.verify(log).findings == []
    return ends_of(found)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_failed_assertion_on_the_device_stops_the_engine_and_another_process_goes_on(
    is_async, tmp_path, on_a_cpu
):
    db = tmp_path / "run.db"
    process = ended("assert", db, is_async=is_async)
    first, *later = process.stdout.splitlines()
    assert first.startswith("DeviceLost cuda:0 failed for good"), process.stderr
    assert later
    assert all(line.startswith("EngineClosed the engine stopped at step") for line in later)
    assert all("failed for good" in line for line in later)
    found = recovered(db)
    assert len(found) >= 3
    assert found == {name: on_a_cpu[name] for name in found}


def test_a_run_killed_on_the_device_goes_on_there_in_a_new_process(tmp_path, on_a_cpu):
    db = tmp_path / "run.db"
    process = ended("kill", db, is_async=True)
    assert process.returncode == -9, process.stderr
    found = recovered(db)
    assert len(found) >= 3
    assert found == {name: on_a_cpu[name] for name in found}
