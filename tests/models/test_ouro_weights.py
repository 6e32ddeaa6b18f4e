"""Model folders: every way in which one can be wrong is refused before memory is taken."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlt_fsm.errors import CheckpointError
from runner.models import weights
from runner.models.ouro import OuroConfig, OuroModel
from runner.models.weights import load_checkpoint, save_checkpoint

CONFIG = OuroConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    total_ut_steps=4,
    bos_token_id=0,
    eos_token_ids=(0,),
)
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def model():
    torch.manual_seed(0)
    return OuroModel(CONFIG)


@pytest.fixture
def folder(tmp_path, model):
    save_checkpoint(tmp_path, CONFIG, model)
    return tmp_path


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


def rewrite(folder, tensors):
    save_file(tensors, folder / "model.safetensors")


def shard(folder, placing):
    """Split model.safetensors: `placing(name)` → shard file name; returns the weight map."""
    tensors = tensors_of(folder)
    weight_map = {name: placing(name) for name in tensors}
    for file in sorted(set(weight_map.values())):
        save_file({n: t for n, t in tensors.items() if weight_map[n] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    write_index(folder, weight_map)
    return weight_map


def write_index(folder, weight_map):
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def halves(name):
    return f"model-0000{1 if 'layers' in name else 2}-of-00002.safetensors"


def assert_refused(folder, says):
    with pytest.raises(CheckpointError) as refusal:
        load_checkpoint(folder)
    sentence = str(refusal.value)
    assert says in sentence, sentence
    assert "\n" not in sentence


def test_the_state_dict_has_exactly_the_checkpoints_tensor_names(model):
    layer = [
        *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
        "input_layernorm.weight",
        "input_layernorm_2.weight",
        "post_attention_layernorm.weight",
        "post_attention_layernorm_2.weight",
    ]
    names = {f"model.layers.{i}.{name}" for i in range(2) for name in layer}
    names |= {EMBEDDING, "model.norm.weight", "lm_head.weight"}
    names |= {"model.early_exit_gate.weight", "model.early_exit_gate.bias"}
    assert set(model.state_dict()) == names
    assert len(names) == 11 * CONFIG.num_hidden_layers + 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_saved_model_comes_back_equal_in_the_dtype_asked_for(folder, model, dtype):
    config, loaded = load_checkpoint(folder, dtype)
    assert config == CONFIG
    assert not loaded.training
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, model.state_dict()[name].to(dtype))
        assert not tensor.requires_grad


def test_shards_load_like_a_single_file(folder, model):
    shard(folder, halves)
    _, loaded = load_checkpoint(folder, torch.float32)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_a_missing_tensor_is_refused(folder):
    tensors = tensors_of(folder)
    del tensors["lm_head.weight"]
    rewrite(folder, tensors)
    assert_refused(folder, "tensor lm_head.weight is missing (1 of 27 are)")


def test_an_unknown_tensor_is_refused(folder):
    rewrite(folder, tensors_of(folder) | {"model.extra.weight": torch.zeros(2)})
    assert_refused(folder, "tensor model.extra.weight is not part of this model")


def test_stored_rotary_frequencies_are_unknown_too(folder):
    rewrite(folder, tensors_of(folder) | {"model.rotary.inv_freq": torch.zeros(4)})
    assert_refused(folder, "model.rotary.inv_freq is not part of this model")


def test_a_wrong_shape_is_refused_with_both_shapes(folder):
    rewrite(folder, tensors_of(folder) | {EMBEDDING: torch.zeros(32, 64)})
    assert_refused(folder, f"{EMBEDDING} has shape [32, 64]: config.json asks for [64, 32]")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_a_tensor_that_is_not_floating_point_is_refused(folder, dtype):
    rewrite(folder, tensors_of(folder) | {EMBEDDING: torch.zeros(64, 32, dtype=dtype)})
    assert_refused(folder, f"{EMBEDDING} has dtype")


def test_a_tensor_in_two_shards_is_refused(folder):
    weight_map = shard(folder, halves)
    other = halves("model.layers.0")
    save_file(load_file(folder / other) | {EMBEDDING: torch.zeros(64, 32)}, folder / other)
    write_index(folder, weight_map | {EMBEDDING: other})
    assert_refused(folder, f"tensor {EMBEDDING} is in both")


def test_a_tensor_outside_the_shard_the_index_names_is_refused(folder):
    weight_map = shard(folder, halves)
    write_index(folder, weight_map | {EMBEDDING: halves("model.layers.0")})
    assert_refused(folder, f"places tensor {EMBEDDING} in")


def test_a_tensor_the_index_does_not_list_is_refused(folder):
    weight_map = shard(folder, halves)
    del weight_map[EMBEDDING]
    write_index(folder, weight_map)
    assert_refused(folder, f"places tensor {EMBEDDING} in None")


def test_a_tensor_the_index_lists_but_no_shard_holds_is_refused(folder):
    weight_map = shard(folder, halves)
    write_index(folder, weight_map | {"model.extra.weight": halves("")})
    assert_refused(folder, "lists tensor model.extra.weight")


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "/abs.safetensors", "a/b.safetensors", "a\\b.safetensors", "w.bin"],
)
def test_a_shard_must_be_a_plain_safetensors_file_name(folder, name):
    weight_map = shard(folder, halves)
    write_index(folder, weight_map | {EMBEDDING: name})
    assert_refused(folder, "must be the plain name of a .safetensors file")


@pytest.mark.parametrize("weight_map", [{}, [], None])
def test_an_index_without_a_weight_map_is_refused(folder, weight_map):
    shard(folder, halves)
    write_index(folder, weight_map)
    assert_refused(folder, "weight_map must be an object")


def test_a_missing_shard_is_refused(folder):
    shard(folder, halves)
    (folder / halves("")).unlink()
    assert_refused(folder, f"{halves('')} does not exist")


def test_an_index_beside_a_single_file_is_ambiguous(folder):
    write_index(folder, {EMBEDDING: "model.safetensors"})
    assert_refused(folder, "keep one")


def test_a_damaged_file_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert_refused(folder, "not a readable safetensors file")


def test_pickled_weights_are_never_opened(folder):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a checkpoint ran code",))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    (folder / "modeling_ouro.py").write_text("raise SystemExit('a checkpoint ran code')")
    assert_refused(folder, "read from safetensors only")


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    assert_refused(tmp_path / "nowhere", "is not a folder")


def test_nothing_is_allocated_for_a_model_that_does_not_fit_its_config(folder, monkeypatch):
    huge = CONFIG.to_mapping() | {"vocab_size": 10**9, "hidden_size": 10**6, "head_dim": 8}
    (folder / "config.json").write_text(json.dumps(huge))
    monkeypatch.setattr(weights, "_fill", lambda *_: pytest.fail("weights were read"))
    assert_refused(folder, "config.json asks for")
