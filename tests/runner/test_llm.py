"""The facade: order, text, streams, refusals that leave nothing behind, and the log it writes."""

from itertools import pairwise

import msgspec
import pytest
from driving import tiny_model
from reference import dense_ouro
from reference.dense_ouro import ExitRule
from told import triggers

from rlt_fsm import (
    CacheConfig,
    CheckpointError,
    ConfigError,
    EngineClosed,
    EngineConfig,
    EventLog,
    ExecutionConfig,
    RequestRefused,
    RltError,
    SamplingParams,
    SchedulerConfig,
)
from runner import LLM
from runner.demo.tokenizer import DESCRIPTION
from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import save_checkpoint

CONFIG = EngineConfig(
    scheduler=SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=7, prefill_chunk_size=4),
    cache=CacheConfig(block_size=4),
)


@pytest.fixture
def folder(tmp_path):
    """A model of token ids only: no tokenizer."""
    loaded = tiny_model(seed=8)
    save_checkpoint(tmp_path / "tiny", loaded.config, loaded.model)
    return tmp_path / "tiny"


@pytest.fixture
def byte_folder(tmp_path):
    """A model of 257 tokens with the byte tokenizer."""
    loaded = tiny_model(seed=8)
    config = msgspec.structs.replace(loaded.config, vocab_size=257, eos_token_ids=(0,))
    model = OuroModel(config)
    save_checkpoint(tmp_path / "bytes", config, model)
    (tmp_path / "bytes" / "tokenizer_config.json").write_bytes(msgspec.json.encode(DESCRIPTION))
    return tmp_path / "bytes"


def aborts(llm):
    """How many requests the log says were aborted."""
    return triggers(llm.engine.log).count("abort")


def nothing_is_left(llm):
    return (
        not llm.engine.has_unfinished_requests()
        and llm.engine.state.pool.free == llm.engine.config.cache.num_blocks
    )


def reference_completions(folder, prompts, params):
    config = OuroConfig.from_json(folder)
    weights = tiny_model(seed=8).model.state_dict()
    shape = {name: getattr(config, name) for name in config.__struct_fields__}
    completions = []
    for prompt, own in zip(prompts, params, strict=True):
        rule = ExitRule(own.exit_threshold, own.min_loops, own.max_loops)
        made = dense_ouro.generate(weights, shape, prompt, rule, max_tokens=own.max_tokens)
        completions.append((made.tokens, made.exit_depths))
    return completions


def test_outputs_come_in_the_order_of_prompts_and_agree_with_the_dense_reference(folder):
    prompts = [[5, 6, 7, 8, 9, 10], [11], [3, 3, 3], [60, 2], [1] * 17]
    params = [
        SamplingParams(max_tokens=3 + k, exit_threshold=t, logprobs=0)
        for k, t in enumerate((0.0, 0.7, 1.0, 0.6, 0.5))
    ]
    with LLM(folder, device="cpu", config=CONFIG) as llm:
        outputs = llm.generate(prompts, params)
    assert [list(o.prompt_token_ids) for o in outputs] == prompts
    assert all(o.finished and o.finish_reason == "length" for o in outputs)
    completions = [(o.token_ids, o.exit_depths) for o in outputs]
    assert completions == reference_completions(folder, prompts, params)
    assert all(len(o.logprobs) == len(o.token_ids) for o in outputs)
    assert all(o.text is None for o in outputs)


@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_a_batch_of_prompts_equals_one_call_per_prompt(folder, layout):
    prompts = [[k + 1, 2, 3] for k in range(6)]
    params = SamplingParams(max_tokens=6, temperature=0.9, exit_threshold=0.6, seed=4)
    config = msgspec.structs.replace(CONFIG, cache=CacheConfig(block_size=4, layout=layout))
    with LLM(folder, device="cpu", config=config) as llm:
        together = llm.generate(prompts, params)
        alone = [llm.generate([prompt], params)[0] for prompt in prompts]
    assert [o.token_ids for o in together] == [o.token_ids for o in alone]
    assert [o.exit_depths for o in together] == [o.exit_depths for o in alone]


def test_text_prompts_are_encoded_and_completions_decoded(byte_folder):
    with LLM(byte_folder, device="cpu") as llm:
        (output,) = llm.generate("hi", SamplingParams(max_tokens=4, ignore_eos=True))
        assert output.prompt_token_ids == (105, 106)
        assert output.text == llm.tokenizer.decode(output.token_ids)


def test_a_stop_token_stays_in_token_ids_and_out_of_the_text(byte_folder):
    with LLM(byte_folder, device="cpu") as llm:
        free = llm.generate("hi", SamplingParams(max_tokens=3, ignore_eos=True))[0]
        stop = free.token_ids[-1]
        first = free.token_ids.index(stop)
        (output,) = llm.generate("hi", SamplingParams(max_tokens=9, stop_token_ids=(stop,)))
        assert output.finish_reason == "stop"
        assert output.token_ids == free.token_ids[: first + 1]
        assert output.text == llm.tokenizer.decode(free.token_ids[:first])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_yields_every_token_of_every_prompt_as_it_comes(folder, is_async):
    execution = ExecutionConfig(async_scheduling=is_async)
    config = msgspec.structs.replace(CONFIG, execution=execution)
    with LLM(folder, device="cpu", config=config) as llm:
        seen = {}
        for output in llm.stream([[5, 6], [7]], SamplingParams(max_tokens=5)):
            seen.setdefault(output.request_id, []).append(output)
        assert sorted(seen, key=int) == list(seen)
        for outputs in seen.values():
            assert [len(output.token_ids) for output in outputs] == [1, 2, 3, 4, 5]
            assert [output.finished for output in outputs] == [False] * 4 + [True]
            assert [o.token_ids for o in outputs] == [
                outputs[-1].token_ids[:n] for n in range(1, 6)
            ]


def test_the_text_of_a_stream_only_grows(byte_folder):
    with LLM(byte_folder, device="cpu") as llm:
        params = SamplingParams(max_tokens=12, temperature=1.0, ignore_eos=True)
        texts = [output.text for output in llm.stream("hi", params)]
    assert len(texts) == 12
    assert all(after.startswith(before) for before, after in pairwise(texts))


def test_a_stream_that_is_closed_early_aborts_what_is_left(folder):
    with LLM(folder, device="cpu", config=CONFIG) as llm:
        stream = llm.stream([[5, 6], [7]], SamplingParams(max_tokens=50))
        next(stream)
        stream.close()
        assert nothing_is_left(llm)
        assert aborts(llm) == 2
        assert len(llm.generate([[5]])) == 1


def test_an_exception_in_the_loop_that_reads_a_stream_aborts_what_is_left(folder):
    def read(llm):
        for _ in llm.stream([[5, 6], [7], [8]], SamplingParams(max_tokens=50)):
            raise ZeroDivisionError

    with LLM(folder, device="cpu", config=CONFIG) as llm:
        with pytest.raises(ZeroDivisionError):
            read(llm)
        assert nothing_is_left(llm)
        assert aborts(llm) == 3


def test_a_tokenizer_that_fails_aborts_the_stream_whose_text_it_could_not_make(byte_folder):
    class Failing:
        def decode(self, _token_ids):
            raise ValueError("no such token")

    with LLM(byte_folder, device="cpu") as llm:
        llm.tokenizer = Failing()
        stream = llm.stream([[5, 6], [7]], SamplingParams(max_tokens=9, ignore_eos=True))
        with pytest.raises(ValueError, match="no such token") as caught:
            next(stream)
        assert nothing_is_left(llm), caught  # while the error, and every frame of it, is held
        assert aborts(llm) == 2
        assert list(stream) == []


def test_a_stream_of_a_closed_llm_says_so_and_closes_quietly(folder):
    with LLM(folder, device="cpu", config=CONFIG) as llm:
        read_on = llm.stream([[5, 6]], SamplingParams(max_tokens=50))
        next(read_on)
    assert aborts(llm) == 1
    with pytest.raises(EngineClosed):
        next(read_on)
    read_on.close()


def test_a_second_stream_is_refused_and_the_first_goes_on(folder):
    with LLM(folder, device="cpu", config=CONFIG) as llm:
        first = llm.stream([[5, 6]], SamplingParams(max_tokens=5))
        next(first)
        with pytest.raises(RltError, match="busy"):
            next(llm.stream([[7]]))
        assert len(list(first)) == 4


def test_one_refused_prompt_means_that_none_is_run(folder):
    with LLM(folder, device="cpu", config=CONFIG) as llm:
        with pytest.raises(RequestRefused, match="outside the vocabulary of 64"):
            llm.generate([[5, 6], [7], [64]])
        assert not llm.engine.has_unfinished_requests()
        assert llm.engine.last_schedule is None or llm.engine.last_schedule.batch is None
        assert llm.generate([[5, 6]])[0].finished


@pytest.mark.parametrize(
    ("prompts", "params", "words"),
    [
        ([[1], [2]], [SamplingParams()], "1 params for 2 prompts"),
        ([1, 2, 3], None, "a prompt of token ids is a list of its own"),
        (None, None, "prompts is of type NoneType: give one for all, or a list"),
        (5, None, "prompts is of type int"),
        ({"a": 1}, None, "prompts is of type dict"),
        ([None], None, "prompts holds None: a prompt"),
        ([[1]], "x", "params is of type str"),
        ("text", None, "has no tokenizer.json"),
        ([[1], "text"], None, "has no tokenizer.json"),
    ],
)
def test_prompts_that_cannot_be_paired_or_read_are_refused_before_anything_runs(
    folder, prompts, params, words
):
    with LLM(folder, device="cpu") as llm:
        with pytest.raises(RltError, match=words):
            llm.generate(prompts, params)
        assert llm.engine.current_step == 0


def test_no_prompts_give_no_outputs(folder):
    with LLM(folder, device="cpu") as llm:
        assert llm.generate([]) == []


def test_a_busy_engine_is_left_alone(folder):
    with LLM(folder, device="cpu") as llm:
        llm.engine.add_request("mine", [1, 2])
        with pytest.raises(RltError, match="busy"):
            llm.generate([[3]])
        assert llm.engine.abort_request("mine")


def test_the_log_of_a_call_is_in_the_file_and_drained(folder, tmp_path):
    with LLM(folder, db=tmp_path / "run.db", device="cpu") as llm:
        llm.generate([[1, 2], [3]], SamplingParams(max_tokens=2))
    with EventLog.open_for_reading(tmp_path / "run.db") as log:
        (run,) = log.reader().runs()
    assert run.outcome == "drained"
    assert '"name":"tiny"' in run.model
    assert '"num_blocks":null' not in run.config


def test_a_closed_llm_says_so(folder):
    llm = LLM(folder, device="cpu")
    llm.close()
    llm.close()
    with pytest.raises(EngineClosed):
        llm.generate([[1]])


def test_a_config_that_cannot_work_is_refused(folder):
    config = EngineConfig(execution=ExecutionConfig(attention_backend="triton"))
    with pytest.raises(ConfigError, match="set it to 'auto' or 'torch'"):
        LLM(folder, device="cpu", config=config)


@pytest.mark.parametrize(
    "model", ["./nowhere", "/no/such/folder", "nowhere", "a/b/c", "~/none", "../x"]
)
def test_a_folder_that_is_not_there_is_refused_in_one_sentence(model, tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    with pytest.raises(CheckpointError, match="is not a folder: give 'demo', a folder") as caught:
        LLM(model)
    assert "\n" not in str(caught.value)
