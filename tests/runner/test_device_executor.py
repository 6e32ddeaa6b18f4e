"""The fused loop, its buffers and short ways on a CPU: the kernels' twins behind the same code that
launches kernels on a GPU.
"""

from functools import partial

import pytest
import torch
from driving import Driver, completions, small_config, take_the_devices_way, tiny_model
from recovery.scenes import outputs_in
from told import events

import audit
import runner.prompt_loop
from rlt_fsm import Engine, EngineConfig, EventLog, SamplingParams
from rlt_fsm.config import CacheConfig, ExecutionConfig, ExitConfig, SchedulerConfig
from runner.device_executor import DeviceExecutor
from runner.prompt_loop import PromptLoop
from runner.torch_runner import TorchRunner

PROMPTS = {"a": [5, 9, 2, 33, 17], "b": [7], "c": [1, 50, 3]}


@pytest.fixture
def fused(monkeypatch):
    """Runners that start once it was called take the device's way."""
    return partial(take_the_devices_way, monkeypatch)


def served(how, **config):
    driver = Driver(tiny_model(seed=2), small_config(**config), chunk=3)
    lives = [
        driver.add(name, prompt, max_tokens=6, min_loops=1, exit_threshold=0.7, logprobs=0, **own)
        for (name, prompt), own in zip(
            PROMPTS.items(), ({}, {"temperature": 0.8, "top_p": 0.9}, {"temperature": 1.2}),
            strict=True,
        )
    ]  # fmt: skip
    getattr(driver, how)(lives)
    return completions(lives), [live.logprobs for live in lives]


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("layout", ["last_exited", "shared"])
@pytest.mark.parametrize("how", ["packed", "serial"])
def test_tokens_depths_and_logprobs_are_those_of_the_general_way(
    fused, layout, how, batch_invariant
):
    expected, expected_logprobs = served("packed", layout=layout)
    fused()
    got, logprobs = served(how, layout=layout, batch_invariant=batch_invariant)
    assert got == expected
    assert logprobs == [pytest.approx(own, abs=1e-4) for own in expected_logprobs]


def test_prompts_of_several_tiles_are_what_they_are_alone_whatever_padding_is_behind_them(
    fused, monkeypatch
):
    generator = torch.Generator().manual_seed(7)
    prompts = [
        torch.randint(1, 60, (length,), generator=generator).tolist() for length in (150, 64, 2, 65)
    ]

    def run():
        config = EngineConfig(
            scheduler=SchedulerConfig(max_num_batched_tokens=400, prefill_chunk_size=130),
            cache=CacheConfig(num_blocks=512, block_size=4),
        )
        ends = {}
        model = tiny_model(seed=2, context=256)
        with Engine(TorchRunner(model), config) as engine:
            for place, prompt in enumerate(prompts):
                params = SamplingParams(max_tokens=3, min_loops=1, exit_threshold=0.7, logprobs=0)
                engine.add_request(str(place), prompt, params)
            while engine.has_unfinished_requests():
                for output in engine.step():
                    ends[output.request_id] = output
        tokens = {name: (end.token_ids, end.exit_depths) for name, end in ends.items()}
        return tokens, [logprob for name in sorted(ends) for logprob in ends[name].logprobs]

    tokens, logprobs = run()
    expected = tokens, pytest.approx(logprobs, abs=1e-4)
    fused()
    assert run() == expected
    plain, sizes = PromptLoop.run, []

    def run_padded(self, hidden, spans, rows, launch):
        sizes.append((rows, self.most))
        return plain(self, hidden, spans, self.most, launch)

    monkeypatch.setattr(PromptLoop, "run", run_padded)
    assert run() == expected
    assert any(rows < most for rows, most in sizes), "some launches were padded"


def served_in_turn(lengths):
    """One request after the other in one state row, each with blocks and tokens of its own."""
    generator = torch.Generator().manual_seed(5)
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=80, prefill_chunk_size=80),
        cache=CacheConfig(num_blocks=512, block_size=4),
    )
    with Engine(TorchRunner(tiny_model(seed=2)), config) as engine:
        for place, length in enumerate(lengths):
            prompt = torch.randint(1, 60, (length,), generator=generator).tolist()
            engine.add_request(str(place), prompt, SamplingParams(max_tokens=3))
        while engine.has_unfinished_requests():
            engine.step()
        return outputs_in(engine.log)


def test_prompts_laid_out_alike_are_sent_once_and_each_gets_its_own_tokens(fused, monkeypatch):
    lengths = [70, 70, 65, 70]
    expected = served_in_turn(lengths)
    assert len({tuple(outputs) for outputs in expected.values()}) == len(lengths)
    plain, sent = runner.prompt_loop.upload, []

    def upload(array, device):
        sent.append(array.ndim)
        return plain(array, device)

    fused()
    monkeypatch.setattr(runner.prompt_loop, "upload", upload)
    assert served_in_turn(lengths) == expected
    whole, planes = [2, 2], [1]  # rows and tiles; one for each further loop of the four
    assert sent == (whole + planes * 7) + (whole + planes * 3) * 2


def test_fused_weights_are_the_models_own_and_survive_a_second_start(fused):
    loaded = tiny_model(seed=2)
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    fused()
    for _ in range(2):
        Driver(loaded)
        after = loaded.model.state_dict()
        assert list(after) == list(before)
        assert all(torch.equal(after[name], before[name]) for name in before)
    attention = loaded.model.model.layers[0].self_attn
    storage = attention.q_proj.weight.untyped_storage()
    assert attention.v_proj.weight.untyped_storage().data_ptr() == storage.data_ptr()


def test_a_snapshot_returns_to_another_row_and_other_blocks(fused):
    fused()

    def run(*, moves):
        driver = Driver(tiny_model(seed=2))
        live = driver.add("a", PROMPTS["a"], max_tokens=4, min_loops=1, exit_threshold=0.7)
        while not live.is_finished:
            if moves:
                driver.runner.park(live.spec, live.state_row)
                driver.runner.offload(live.spec, live.block_table)
                blocks = [block for plane in live.block_table for block in plane]
                driver.runner._started.cache.keys[blocks] = float("nan")
                live.state_row = (live.state_row + 1) % 4
                live.block_table = tuple(reversed(live.block_table))
                driver.runner.unpark(live.spec, live.state_row)
                driver.runner.reload(live.spec, live.block_table)
            driver.run([live])
        return completions([live])

    assert run(moves=True) == run(moves=False)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_engine_with_tickets_in_flight_gets_the_same_outputs(fused, is_async):
    depths = {"a": (4, 2, 3, 2, 4), "b": (4, 4, 1, 2, 3), "c": (4, 1, 1, 1, 1)}

    def outputs(execution):
        config = EngineConfig(
            scheduler=SchedulerConfig(max_num_seqs=2),
            cache=CacheConfig(num_blocks=128, block_size=4),
            execution=execution,
            exit=ExitConfig(mode="trace"),
        )
        ends = {}
        with Engine(TorchRunner(tiny_model(seed=2)), config) as engine:
            for name, prompt in PROMPTS.items():
                params = SamplingParams(
                    max_tokens=5, min_loops=1, exit_depths=depths[name], temperature=0.7
                )
                engine.add_request(name, prompt, params)
            while engine.has_unfinished_requests():
                for output in engine.step():
                    ends[output.request_id] = (output.token_ids, output.exit_depths)
        return ends

    expected = outputs(ExecutionConfig())
    fused()
    assert outputs(ExecutionConfig(async_scheduling=is_async)) == expected


def out_of_memory(_executor, _progress):
    raise torch.OutOfMemoryError


def test_without_memory_for_graphs_the_run_goes_on_and_its_log_says_why(fused, monkeypatch):
    fused()
    monkeypatch.setattr(DeviceExecutor, "capture", out_of_memory)
    config = small_config(cuda_graphs=True)
    with EventLog.memory() as log:
        with Engine(TorchRunner(tiny_model(seed=2)), config, log) as engine:
            assert not engine.config.execution.cuda_graphs
        (_, first), *_ = events(log)
    assert first.reason == "no-cuda-graphs cause=out-of-memory"


def test_a_run_that_had_graphs_is_recovered_without_memory_for_them(fused, monkeypatch):
    def begun(log):
        engine = Engine(TorchRunner(tiny_model(seed=2)), small_config(cuda_graphs=True), log)
        for place, (name, prompt) in enumerate(PROMPTS.items()):
            params = SamplingParams(max_tokens=5, min_loops=1, exit_threshold=0.7, seed=place)
            engine.add_request(name, prompt, params)
        for _ in range(8):
            engine.step()
        return engine

    def ended(engine):
        while engine.has_unfinished_requests():
            engine.step()
        engine.close()
        return outputs_in(engine.log)

    fused()
    monkeypatch.setattr(DeviceExecutor, "capture", lambda *_: 0)  # its steps are launched singly
    expected = ended(begun(EventLog.memory()))
    log = begun(EventLog.memory()).log
    monkeypatch.setattr(DeviceExecutor, "capture", out_of_memory)
    assert ended(Engine.recover(log, TorchRunner(tiny_model(seed=2)))) == expected
    (recover,) = [row for trigger, row in events(log) if trigger == "recover"]
    assert recover.reason == "no-cuda-graphs cause=out-of-memory"
    assert audit.verify(log).verdict == "clean"
