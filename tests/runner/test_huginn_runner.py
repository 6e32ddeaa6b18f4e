"""Huginn beside the engine: what is refused at the start, its pool, its folder, its commands."""

import json
import sqlite3
from contextlib import closing

import msgspec
import pytest
import torch
from driving import tiny_model
from driving_huginn import TINY, reference_config, tiny_huginn
from reference import dense_huginn
from typer.testing import CliRunner

import audit
from audit.cli import app as audit_app
from rlt_fsm import (
    CacheConfig,
    Engine,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    ExitConfig,
    SamplingParams,
)
from rlt_fsm.errors import ConfigError
from runner import LLM, cli
from runner.kv_cache import KVCache, KVCacheError, Span
from runner.kv_layout import geometry_of
from runner.model_check import check_model
from runner.models.dense import sequence_logits
from runner.models.huginn import HuginnModel
from runner.models.weights import save_checkpoint
from runner.torch_runner import TorchRunner

CPU = torch.device("cpu")
SMALL = CacheConfig(num_blocks=100, block_size=4)
TRACED = EngineConfig(
    cache=SMALL, exit=ExitConfig(mode="trace"), execution=ExecutionConfig(durability="step")
)
PROMPT = [5, 6, 7, 8, 9]
PARAMS = SamplingParams(max_tokens=6, min_loops=1, exit_depths=(4, 1, 3, 2, 4, 1), seed=9)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    loaded = tiny_huginn()
    save_checkpoint(tmp_path / "hug", loaded.config, loaded.model)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hug"


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            EngineConfig(cache=CacheConfig(num_blocks=100, enable_prefix_caching=True)),
            "enable_prefix_caching=True does not go with tiny-huginn, whose KV depends on each",
        ),
        (
            EngineConfig(cache=SMALL, execution=ExecutionConfig(attention_backend="triton")),
            "attention_backend='triton' does not run tiny-huginn in this version",
        ),
        (
            EngineConfig(cache=SMALL, execution=ExecutionConfig(cuda_graphs=True)),
            "cuda_graphs=True needs a CUDA device and attention_backend 'triton'",
        ),
    ],
)
def test_what_does_not_go_with_it_is_one_sentence_at_the_start(config, sentence):
    with pytest.raises(ConfigError) as refusal:
        TorchRunner(tiny_huginn()).start(config)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---- the pool ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "planes"), [("last_exited", 5), ("shared", 2)])
def test_layers_outside_the_loops_have_one_plane_more(layout, planes):
    config = EngineConfig(cache=CacheConfig(num_blocks=100, layout=layout))
    facts, _ = TorchRunner(tiny_huginn()).start(config)
    assert (facts.depths, facts.planes, facts.max_model_len) == (4, planes, 96)
    geometry = geometry_of(TINY.shape, config.cache, torch.float32)
    assert (geometry.layers, geometry.loop_planes) == (4, planes - 1)


def test_a_model_without_such_layers_has_none():
    geometry = geometry_of(tiny_model().config.shape, SMALL, torch.float32)
    assert (geometry.planes, geometry.loop_planes, geometry.boundary) == (4, 4, False)


def test_history_of_the_prelude_is_none_of_the_coda():
    geometry = geometry_of(TINY.shape, SMALL, torch.float32)
    cache = KVCache(geometry, 10, CPU)
    table, owner = tuple((plane,) for plane in range(geometry.planes)), ("a", 1)

    def span(depth, start, end):
        return Span(owner, table, depth, start, end)

    cache.prepare([span(geometry.prelude_depth, 0, 3)])
    cache.prepare([span(geometry.coda_depth, 0, 2)])
    assert cache.plane(geometry.prelude_depth) == cache.plane(geometry.coda_depth) == 4
    cache.prepare([span(geometry.coda_depth, 1, 2)])  # the same position again
    with pytest.raises(KVCacheError, match="only 2 positions are written"):
        cache.prepare([span(geometry.coda_depth, 3, 4)])
    with pytest.raises(KVCacheError, match="only 0 positions are written"):
        cache.prepare([span(0, 1, 2)])
    with pytest.raises(KVCacheError, match=r"depth 6 outside \[0, 6\)"):
        cache.prepare([span(6, 0, 1)])


def test_an_exit_does_not_touch_the_plane_outside_the_loops():
    geometry = geometry_of(TINY.shape, SMALL, torch.float32)
    cache = KVCache(geometry, 10, CPU)
    cache.keys.normal_()
    table, owner = tuple((plane,) for plane in range(geometry.planes)), ("a", 1)
    cache.prepare([Span(owner, table, 0, 0, 1)])
    outside = cache.keys[4].clone()
    cache.fill_exit(owner, table, 0, 1)
    assert torch.equal(cache.keys[3, :, 0], cache.keys[0, :, 0])
    assert torch.equal(cache.keys[4], outside)


# ---- the plain forward, a folder, the commands -------------------------------------------------


@pytest.mark.parametrize("seed", [0, 11])
def test_the_plain_forward_agrees_with_the_token_by_token_reference(seed):
    loaded = tiny_huginn(seed=4)
    prompt, depths = [3, 14, 15, 9, 26], [4, 1, 3, 2, 4, 1]
    made = dense_huginn.generate(
        loaded.model.state_dict(),
        reference_config(loaded),
        prompt,
        depths,
        max_tokens=len(depths),
        seed=seed,
    )
    tokens = prompt + made.tokens[:-1]
    logits = sequence_logits(loaded.model, tokens, [4] * len(prompt) + depths[1:], seed)
    assert torch.allclose(logits[len(prompt) - 1 :], torch.stack(made.logits), atol=1e-4)


def test_llm_serves_a_folder_in_bfloat16_and_sampled(folder):
    params = [
        SamplingParams(max_tokens=5, temperature=0.9, seed=seed, max_loops=2, logprobs=0)
        for seed in (1, 1, 2)
    ]
    config = EngineConfig(execution=ExecutionConfig(batch_invariant=True))
    with LLM(folder, device="cpu", dtype="bfloat16", config=config) as llm:
        first, same, other = llm.generate([[5, 6, 7]] * 3, params)
    assert (first.token_ids, first.logprobs) == (same.token_ids, same.logprobs)
    assert first.logprobs != other.logprobs, "the seed decides where loops start"
    assert first.exit_depths == [4, 2, 2, 2, 2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_checkpoint_is_well(folder, dtype):
    arguments = ["model", "check", str(folder), "--device", "cpu", "--dtype", dtype, "--json"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [line["differences"] for line in told["served"]] == [[], []]


@pytest.mark.parametrize(
    ("before", "inside", "after", "loops"),
    [(1, 1, 1, 1), (1, 4, 1, 2), (3, 1, 2, 5), (1, 2, 4, 3), (2, 4, 2, 32)],
)
def test_any_number_of_layers_and_loops_is_served_as_the_plain_forward_has_it(
    tmp_path, before, inside, after, loops
):
    config = msgspec.structs.replace(
        TINY,
        n_layers_in_prelude=before,
        n_layers_in_recurrent_block=inside,
        n_layers_in_coda=after,
        mean_recurrence=loops,
    )
    torch.manual_seed(before)
    save_checkpoint(tmp_path, config, HuginnModel(config))
    report = check_model(tmp_path, device="cpu")
    assert report.ok, report
    assert [line.exit_depths[0] for line in report.served] == [loops, loops]


def test_inspect_tells_of_layers_outside_the_loops(folder):
    arguments = ["model", "inspect", str(folder), "--device", "cpu"]
    lines = CliRunner().invoke(cli.app, arguments).stdout.splitlines()
    assert "model         hug (RavenForCausalLM)" in lines
    assert "layers        3 in each loop, 2 before and 2 after" in lines
    assert "KV per token  1,344 bytes in each of 5 planes, 6,720 in all (float32)" in lines


def test_a_run_that_broke_off_goes_on_with_the_same_tokens(tmp_path):
    cut = tmp_path / "cut.db"
    runner = TorchRunner(tiny_huginn())
    with EventLog.open(tmp_path / "run.db") as log, Engine(runner, TRACED, log) as engine:
        engine.add_request("a", PROMPT, PARAMS)
        (request,) = engine.state.by_ref.values()
        while len(request.outputs) < 3:
            engine.step()
        copy_of(tmp_path / "run.db", cut)
        wanted = drained(engine)
    with EventLog.open(cut) as log:
        with Engine.recover(log, TorchRunner(tiny_huginn())) as engine:
            assert drained(engine) == wanted
        assert audit.verify(log).findings == []


def test_a_run_is_driven_again_without_its_model(tmp_path):
    db = tmp_path / "run.db"
    with EventLog.open(db) as log, Engine(TorchRunner(tiny_huginn()), TRACED, log) as engine:
        engine.add_request("a", PROMPT, PARAMS)
        drained(engine)
    for options in ([], ["--set", "cache.layout=shared"]):
        command = ["replay", str(db), "--db", str(tmp_path / "again.db"), "--json", *options]
        driven = CliRunner().invoke(audit_app, command)
        assert driven.exit_code == (1 if options else 0), driven.output
    with EventLog.open_for_reading(tmp_path / "again.db") as log:
        runs = log.reader().runs()
        planes = [json.loads(run.model)["planes"] for run in runs]
    assert planes == [5, 2]


def copy_of(db, copy):
    """What a process that is gone now had committed."""
    with closing(sqlite3.connect(db)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def drained(engine):
    last = ([], [])
    while engine.has_unfinished_requests():
        for output in engine.step():
            last = (output.token_ids, output.exit_depths)
    return last
