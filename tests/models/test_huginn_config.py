"""config.json of a Huginn model: what is read, and what is refused rather than ignored."""

import json
import math

import pytest
import torch

from rlt_fsm.config import CacheConfig
from rlt_fsm.errors import CheckpointError
from runner.kv_layout import geometry_of
from runner.models.architectures import read_config
from runner.models.huginn_config import FIXED_VALUES, HuginnConfig

# The sizes that its authors published, and keys that its tools write beside them.
PUBLISHED = {
    "architectures": ["RavenForCausalLM"],
    "model_type": "huginn_raven",
    "n_embd": 5280,
    "n_heads": 55,
    "n_layers": 8,
    "head_dim": 96,
    "num_key_value_heads": 55,
    "intermediate_size": 17920,
    "n_layers_in_prelude": 2,
    "n_layers_in_recurrent_block": 4,
    "n_layers_in_coda": 2,
    "mean_recurrence": 32,
    "mean_backprop_depth": 8,
    "effective_expected_depth": 132,
    "sampling_scheme": "poisson-lognormal-filling",
    "block_size": 4096,
    "vocab_size": 65536,
    "padded_vocab_size": 65536,
    "padding_multiple": 4096,
    "norm_eps": 1e-6,
    "rope_base": 50000,
    "init_strategy": "takase",
    "init_orthogonal": False,
    "init_values": {
        "std": 0.008703882797784892,
        "out_proj": 0.0005356869554443541,
        "embedding": 0.008703882797784892,
        "embed_scale": 72.6636084983398,
    },
    "activation_checkpoint_impl": "per-iteration",
    "test_time_noise_type": "fixed",
    "bos_token_id": 65504,
    "eos_token_id": 65505,
    "pad_token_id": 65509,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.47.1",
    **{key: value for key, (value, _) in FIXED_VALUES.items()},
}


def test_the_published_configuration_is_read():
    config = HuginnConfig.from_json(PUBLISHED)
    shape = config.shape
    assert (shape.depths, shape.layers, shape.prelude_layers, shape.coda_layers) == (32, 4, 2, 2)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (55, 55, 96)
    assert (shape.hidden_size, shape.state_size) == (5280, 2 * 5280)
    assert (shape.context, shape.vocab_size, shape.eos_token_ids) == (4096, 65536, (65505,))
    assert shape.is_seeded
    assert math.isclose(config.state_std * config.embed_scale, math.sqrt(2 / 5))


def test_its_kv_is_84480_bytes_in_each_of_33_planes():
    geometry = geometry_of(HuginnConfig.from_json(PUBLISHED).shape, CacheConfig(), torch.bfloat16)
    assert geometry.planes == 33
    assert geometry.bytes_per_block == 16 * 84_480


def test_what_is_written_is_read_back_equal():
    config = HuginnConfig.from_json(PUBLISHED)
    assert HuginnConfig.from_json(json.loads(json.dumps(config.to_mapping()))) == config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"injection_type": "add"}, "injection_type='add': only 'linear' is supported"),
        ({"state_init": "normal"}, "state_init='normal': only 'like-init' is supported"),
        ({"tie_embeddings": False}, "tie_embeddings=False: must be true"),
        ({"qk_bias": False}, "qk_bias=False: must be true"),
        ({"test_time_noise": 0.1}, "test_time_noise=0.1: must be 0"),
        ({"num_key_value_heads": 5}, "num_key_value_heads=5: must be 55, n_heads"),
        ({"n_layers": 9}, "n_layers=9: must be 8, the sum of its parts"),
        ({"padded_vocab_size": 65537}, "padded_vocab_size=65537: must be 65536, vocab_size"),
        ({"n_embd": 5281}, "n_embd=5281: must be a multiple of 2 x n_heads=55"),
        ({"mean_recurrence": 0}, "mean_recurrence=0: must be a whole number of 1 or more"),
        ({"mean_recurrence": 2000}, "mean_recurrence=2000: must be 1,024 or less"),
        ({"n_layers_in_coda": 0}, "n_layers_in_coda=0: must be a whole number of 1 or more"),
        ({"norm_eps": 0}, "norm_eps=0: must be a number above 0"),
        ({"eos_token_id": 65536}, "eos_token_id=65536: must be a token id in [0, 65536)"),
        ({"eos_token_id": [1, True]}, "eos_token_id=True: must be a token id in [0, 65536)"),
        ({"bos_token_id": -1}, "bos_token_id=-1: must be a token id in [0, 65536)"),
        ({"pad_token_id": "0"}, "pad_token_id='0': must be a token id in [0, 65536)"),
        ({"init_values": {"embed_scale": 1.0}}, "embed_scale must be 72.66"),
        ({"init_values": [1]}, "init_values=[1]"),
        ({"loop_gate": True}, "loop_gate=True: this key is unknown"),
        ({"architectures": ["Other"]}, "only ['RavenForCausalLM'] is supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(CheckpointError) as refusal:
        HuginnConfig.from_json(PUBLISHED | changes)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("key", ["n_embd", "rope_base", "mean_recurrence", "norm_eps"])
def test_a_size_is_never_guessed(key):
    data = {name: value for name, value in PUBLISHED.items() if name != key}
    with pytest.raises(CheckpointError, match=f"lacks the key {key}"):
        HuginnConfig.from_json(data)


@pytest.mark.parametrize("kind", ["llama", None, 3, ["ouro"]])
def test_another_kind_of_model_is_refused_with_the_known_ones(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(CheckpointError, match="must be one of ouro, huginn_raven"):
        read_config(tmp_path)
