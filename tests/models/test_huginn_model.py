"""The Huginn network and its checkpoints: names, ties, tables, and where its loops start."""

import math

import pytest
import torch
from reference import dense_huginn
from safetensors.torch import load_file, save_file

from rlt_fsm.errors import CheckpointError
from runner.models.huginn import HuginnModel, rotation_table
from runner.models.huginn_config import HuginnConfig
from runner.models.initial_states import initial_states
from runner.models.weights import load_checkpoint, save_checkpoint

CONFIG = HuginnConfig(
    n_embd=24,
    n_heads=2,
    intermediate_size=40,
    n_layers_in_prelude=1,
    n_layers_in_recurrent_block=2,
    n_layers_in_coda=1,
    mean_recurrence=3,
    block_size=32,
    vocab_size=48,
)
EMBEDDING = "transformer.wte.weight"


@pytest.fixture
def model():
    torch.manual_seed(0)
    return HuginnModel(CONFIG).requires_grad_(requires_grad=False)


@pytest.fixture
def folder(tmp_path, model):
    save_checkpoint(tmp_path, CONFIG, model)
    return tmp_path


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


# ---- checkpoints -------------------------------------------------------------------------------


def test_the_state_dict_has_exactly_the_checkpoints_tensor_names(model):
    layer = [
        *(f"norm_{i}.weight" for i in (1, 2, 3, 4)),
        *("attn.Wqkv.weight", "attn.qk_bias", "attn.proj.weight"),
        *("mlp.fc.weight", "mlp.proj.weight"),
    ]
    parts = ["prelude.0", "core_block.0", "core_block.1", "coda.0"]
    names = {f"transformer.{part}.{name}" for part in parts for name in layer}
    names |= {EMBEDDING, "transformer.adapter.weight", "transformer.ln_f.weight", "freqs_cis"}
    assert set(model.state_dict()) == names


def test_shapes_are_the_published_ones(model):
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes["transformer.adapter.weight"] == [24, 48]
    assert shapes["transformer.coda.0.attn.Wqkv.weight"] == [72, 24]
    assert shapes["transformer.coda.0.attn.qk_bias"] == [2, 1, 2, 12]
    assert shapes["transformer.coda.0.mlp.fc.weight"] == [80, 24]
    assert shapes["freqs_cis"] == [1, 32, 1, 6, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_model_comes_back_equal_its_rotations_in_fp32(folder, model, dtype):
    config, loaded = load_checkpoint(folder, dtype)
    assert config == CONFIG
    assert isinstance(loaded, HuginnModel)
    for name, tensor in loaded.state_dict().items():
        kept = torch.float32 if name == "freqs_cis" else dtype
        assert tensor.dtype == kept
        assert torch.equal(tensor, model.state_dict()[name].to(kept))


def test_rotations_may_be_left_out_and_are_computed(folder):
    rewrite(folder, lambda tensors: tensors.pop("freqs_cis"))
    _, loaded = load_checkpoint(folder, torch.bfloat16)
    assert torch.equal(loaded.freqs_cis, rotation_table(CONFIG))


def test_stored_rotations_are_the_ones_that_count(folder):
    def double(tensors):
        tensors["freqs_cis"] = (2 * tensors["freqs_cis"]).to(torch.bfloat16)

    rewrite(folder, double)
    _, loaded = load_checkpoint(folder, torch.float32)
    assert torch.equal(loaded.freqs_cis, (2 * rotation_table(CONFIG)).bfloat16().float())
    assert torch.equal(loaded.half().freqs_cis, loaded.freqs_cis)


def test_a_stored_head_must_be_the_embedding(folder):
    def store(tensors):
        tensors["lm_head.weight"] = tensors[EMBEDDING].clone()

    rewrite(folder, store)
    load_checkpoint(folder)

    def differ(tensors):
        tensors["lm_head.weight"][0, 0] += 1

    rewrite(folder, differ)
    with pytest.raises(CheckpointError, match=f"lm_head.weight differs from {EMBEDDING}"):
        load_checkpoint(folder)


def test_a_missing_tensor_is_refused_and_optional_ones_do_not_count(folder):
    rewrite(folder, lambda tensors: tensors.pop("transformer.adapter.weight"))
    with pytest.raises(CheckpointError, match=r"adapter.weight is missing \(1 of 39 are\)"):
        load_checkpoint(folder)


# ---- arithmetic --------------------------------------------------------------------------------


def test_rotations_are_those_of_the_formula():
    table = rotation_table(CONFIG)
    for position in (0, 1, 31):
        for pair in range(6):
            angle = position * 50_000 ** (-2 * pair / 12)
            cos, sin = table[0, position, 0, pair].tolist()
            assert math.isclose(cos, math.cos(angle), abs_tol=1e-5)
            assert math.isclose(sin, math.sin(angle), abs_tol=1e-5)


def test_the_gate_never_opens(model):
    def attend(_layer, q, _k, _v):
        return torch.zeros_like(q)

    hidden, positions = torch.randn(3, 48), torch.arange(3)
    after, logits = model.recurrent(hidden, positions, attend)
    assert logits.dtype is torch.float32
    assert torch.equal(torch.sigmoid(logits), torch.zeros(3))
    assert torch.equal(after[:, 24:], hidden[:, 24:]), "the embedded input travels unchanged"
    assert not torch.equal(after[:, :24], hidden[:, :24])


# ---- where loops start -------------------------------------------------------------------------

SEEDS = [0, 1, 2**32, 2**63 - 1, 2**64 - 1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 4, 7, 24])
def test_initial_states_are_those_of_the_reference(seed, size):
    positions = [0, 1, 5, 4095]
    drawn = initial_states([seed] * len(positions), positions, size)
    scale = math.sqrt(2 / 5)
    for row, position in zip(drawn, positions, strict=True):
        wanted = dense_huginn.initial_state({"n_embd": size}, seed, position)
        assert torch.allclose(row * scale, wanted, atol=1e-6)


def test_a_draw_depends_on_its_own_seed_and_position_alone():
    seeds, positions = [3, 3, 4, 3], [0, 1, 1, 9]
    together = initial_states(seeds, positions, 10)
    for i, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
        assert torch.equal(initial_states([seed], [position], 10)[0], together[i])
    assert len({tuple(row.tolist()) for row in together}) == len(seeds)


def test_draws_are_normal_but_for_their_cut_tails():
    drawn = initial_states([5] * 200, range(200), 500).flatten()
    assert drawn.abs().max() <= 3
    assert abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.var()) - 0.9733) < 0.01  # of a normal law cut at 3 deviations
    assert abs(float((drawn.abs() < 1).double().mean()) - 0.6845) < 0.005
