"""`rlt-fsm model`: what a folder is, and everything that can be wrong with it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from runner import cli, kv_sizing, model_inspect
from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import save_checkpoint

torch.set_num_threads(1)
CONFIG = OuroConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=96,
    total_ut_steps=3,
    eos_token_ids=(0, 5),
)
EMBEDDING, GATE = "model.embed_tokens.weight", "model.early_exit_gate.bias"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "mine", CONFIG, OuroModel(CONFIG))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


def model(*arguments):
    return CliRunner().invoke(cli.app, ["model", *arguments], prog_name="rlt-fsm")


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


# ---- inspect -----------------------------------------------------------------------------------


def test_inspect_tells_sizes_kv_and_ends():
    result = model("inspect", "mine", "--json", "--device", "cpu", "--dtype", "bfloat16")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["model"], told["architecture"]) == ("mine", "OuroForCausalLM")
    assert (told["depths"], told["layers"], told["context"]) == (3, 2, 96)
    assert told["eos_token_ids"] == [0, 5]
    numbers = sum(p.numel() for p in OuroModel(CONFIG).parameters())
    assert told["parameters"] == numbers
    assert told["stored"] == {"tensors": 27, "bytes": 4 * numbers, "dtypes": {"F32": 27}}
    per_plane = 2 * 2 * 2 * 8 * 2  # K and V, 2 layers, 2 heads of 8, 2 bytes each
    assert told["kv"] == {
        "dtype": "bfloat16",
        "planes": 3,
        "bytes_per_plane": per_plane,
        "bytes_per_token": 3 * per_plane,
    }
    assert told["here"]["weight_bytes"] == 2 * numbers
    assert (told["here"]["fits"], told["here"]["context"]) == ("yes", 96)


def test_inspect_speaks_to_people_too():
    lines = model("inspect", "mine", "--device", "cpu").stdout.splitlines()
    assert "loops         3 at full depth" in lines
    assert "KV per token  256 bytes in each of 3 planes, 768 in all (float32)" in lines
    assert lines[-1].startswith("served here   yes: weights take 0.00 of ")


@pytest.mark.parametrize(
    ("spare_bytes", "fits", "context", "words"),
    [
        (4 * 768 * 96, "yes", 96, "yes: "),
        (4 * 768 * 50, "shorter", 48, "up to 48 tokens (set max_model_len): "),
        (4 * 768 * 15, "no", 0, "no: "),
        (-1000, "no", 0, "no: "),
    ],
)
def test_inspect_tells_what_fits_beside_the_weights(monkeypatch, spare_bytes, fits, context, words):
    weight_bytes = 4 * sum(p.numel() for p in OuroModel(CONFIG).parameters())
    there = weight_bytes + spare_bytes
    monkeypatch.setattr(model_inspect, "available_host_bytes", lambda: there)
    told = json.loads(model("inspect", "mine", "--json", "--device", "cpu").stdout)["here"]
    assert (told["fits"], told["context"], told["available_bytes"]) == (fits, context, there)
    last = model("inspect", "mine", "--device", "cpu").stdout.splitlines()[-1]
    assert last.startswith(f"served here   {words}")


def test_the_share_of_memory_is_the_runners_own():
    assert model_inspect.HOST_FRACTION == kv_sizing.HOST_FRACTION == 0.25


# ---- check -------------------------------------------------------------------------------------


def test_a_whole_checkpoint_is_well():
    result = model("check", "mine", "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["tensors"], told["problems"]) == (27, [])
    full, early = told["served"]
    assert full["exit_depths"] == [3] * 8
    assert early["exit_depths"] == [3, 1, 2, 3, 1, 2, 3, 1]
    assert all(line["differences"] == [] and line["largest"] < 1e-4 for line in (full, early))


def test_the_demo_is_well_with_a_text_in_bfloat16():
    options = ("--device", "cpu", "--dtype", "bfloat16", "--prompt", "27+58=")
    result = model("check", "demo", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "well"


def test_everything_wrong_with_the_tensors_is_told_at_once(folder):
    def spoil(tensors):
        del tensors["lm_head.weight"]
        tensors["model.extra.weight"] = torch.zeros(2)
        tensors[EMBEDDING] = torch.zeros(32, 64)
        tensors[GATE] = torch.zeros(1, dtype=torch.int64)
        tensors["model.norm.weight"][0] = float("nan")
        name = "model.layers.0.input_layernorm.weight"
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)

    rewrite(folder, spoil)
    result = model("check", "mine", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["served"] == []
    problems = "\n".join(told["problems"])
    assert "tensor lm_head.weight is missing (1 of 27 are)" in problems
    assert "tensor model.extra.weight is not part of this model" in problems
    assert f"{EMBEDDING} has shape [32, 64]: config.json asks for [64, 32]" in problems
    assert f"{GATE} has dtype I64" in problems
    assert "input_layernorm.weight has dtype F8_E4M3" in problems
    assert "tensor model.norm.weight has 1 of 32 numbers" in problems
    assert len(told["problems"]) == 6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_told_with_its_tensor(folder, bad):
    def spoil(tensors):
        tensors["model.norm.weight"][3] = bad

    rewrite(folder, spoil)
    result = model("check", "mine")
    assert result.exit_code == 1
    assert (
        "  model.safetensors: tensor model.norm.weight has 1 of 32 numbers that are NaN or infinite"
    ) in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == "not well"


def test_a_served_path_that_computes_something_else_is_told_output_by_output(monkeypatch):
    """What is served forgets the last loop; the plain forward does not."""
    recurrent, calls = OuroModel.recurrent, []

    def wrong(self, hidden, positions, attend):
        calls.append(None)
        states, gate = recurrent(self, hidden, positions, attend)
        is_served = hidden.shape[0] == 1  # decode rows; the plain forward has the whole sequence
        return (hidden if is_served else states), gate

    monkeypatch.setattr(OuroModel, "recurrent", wrong)
    result = model("check", "mine", "--device", "cpu", "--json")
    assert result.exit_code == 1
    full, early = json.loads(result.stdout)["served"]
    assert calls
    for line in (full, early):
        assert "output 1: token " in line["differences"][0]
        assert "the plain forward has token" in line["differences"][0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("inspect", "./nowhere"), "./nowhere is not a folder: give 'demo'"),
        (("check", "./nowhere"), "./nowhere is not a folder: give 'demo'"),
        (("check", "mine", "--prompt", "hello"), "--prompt needs a tokenizer.json"),
        (("check", "demo", "--prompt", "1" * 200), "--prompt has 200 tokens: must have 1 to 121"),
        (("inspect", "mine", "--dtype", "int8"), "dtype='int8': must be 'auto' or one of"),
        (("check", "mine", "--device", "tpu"), "device='tpu': must be 'auto', 'cpu' or"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, sentence):
    result = model(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_config_that_cannot_be_honoured_is_one_sentence(folder):
    text = json.dumps(CONFIG.to_mapping() | {"rope_scaling": {"factor": 2}})
    (folder / "config.json").write_text(text)
    for command in ("inspect", "check"):
        result = model(command, "mine")
        assert result.exit_code == 2
        assert "rope_scaling" in result.stderr
