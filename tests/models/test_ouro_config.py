"""config.json is read strictly: each refusal is one sentence with the key, the value, the rule."""

import json

import msgspec
import pytest

from rlt_fsm.errors import CheckpointError
from runner.models.ouro_config import FIXED_VALUES, OuroConfig

TINY = {
    "architectures": ["OuroForCausalLM"],
    "model_type": "ouro",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "total_ut_steps": 4,
    "early_exit_threshold": 1.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "layer_types": ["full_attention", "full_attention"],
}
IGNORED = {
    "auto_map": {"AutoModel": "modeling_ouro.OuroModel"},
    "torch_dtype": "bfloat16",
    "dtype": "bfloat16",
    "transformers_version": "4.55.0",
    "max_window_layers": 2,
    "use_cache": True,
    "_name_or_path": "somewhere",
}
GONE = object()  # the key is left out


def changed(**changes):
    data = TINY | changes
    return {key: value for key, value in data.items() if value is not GONE}


REFUSED = [
    ("model_type", "llama", "only 'ouro'"),
    ("model_type", GONE, "only 'ouro'"),
    ("architectures", ["LlamaForCausalLM"], "OuroForCausalLM"),
    ("vocab_size", 0, "1 or more"),
    ("vocab_size", True, "1 or more"),
    ("vocab_size", "64", "1 or more"),
    ("vocab_size", 2**70, "must be 2,147,483,647 or less"),
    ("num_hidden_layers", 10**9, "must be 4,096 or less"),
    ("total_ut_steps", 10**9, "must be 1,024 or less"),
    ("rope_theta", 10**400, "above 0, and 2**62 at most"),
    ("vocab_size", GONE, "must be given"),
    ("hidden_size", -32, "1 or more"),
    ("intermediate_size", 64.0, "1 or more"),
    ("num_hidden_layers", None, "1 or more"),
    ("max_position_embeddings", 0, "1 or more"),
    ("total_ut_steps", 0, "1 or more"),
    ("total_ut_steps", GONE, "must be given"),
    ("num_key_value_heads", 3, "must divide num_attention_heads=4"),
    ("head_dim", 7, "even"),
    ("hidden_act", "gelu", "only 'silu'"),
    ("hidden_act", None, "only 'silu'"),
    ("initializer_range", 0, "above 0"),
    ("rms_norm_eps", float("inf"), "above 0"),
    ("rms_norm_eps", "1e-6", "above 0"),
    ("rope_theta", float("nan"), "above 0"),
    ("rope_theta", GONE, "must be given"),
    ("rope_scaling", {"type": "yarn", "factor": 4}, "null"),
    ("early_exit_threshold", 1.5, "[0, 1]"),
    ("early_exit_threshold", None, "[0, 1]"),
    ("bos_token_id", 64, "[0, 64)"),
    ("eos_token_id", -1, "[0, 64)"),
    ("eos_token_id", [0, 64], "[0, 64)"),
    ("eos_token_id", "0", "token id"),
    ("pad_token_id", True, "[0, 64)"),
    ("tie_word_embeddings", True, "must be false"),
    ("tie_word_embeddings", 0, "must be false"),
    ("attention_dropout", 0.1, "must be 0"),
    ("attention_dropout", False, "must be 0"),
    ("use_sliding_window", True, "must be false"),
    ("sliding_window", 4096, "null"),
    ("layer_types", ["full_attention", "sliding_attention"], "full_attention"),
    ("layer_types", "full_attention", "full_attention"),
    ("rope_parameters", {"rope_theta": 1e6}, "unknown"),
    ("quantization_config", None, "unknown"),
]


@pytest.mark.parametrize(("key", "value", "rule"), REFUSED)
def test_a_value_that_cannot_be_honoured_is_refused_with_key_value_and_rule(key, value, rule):
    with pytest.raises(CheckpointError) as refusal:
        OuroConfig.from_json(changed(**{key: value}))
    sentence = str(refusal.value)
    assert key in sentence
    assert rule in sentence
    assert "\n" not in sentence
    if value is not GONE and not isinstance(value, list):
        assert repr(value) in sentence


def test_metadata_that_changes_nothing_is_ignored():
    assert OuroConfig.from_json(TINY | IGNORED) == OuroConfig.from_json(TINY)


def test_keys_with_one_supported_value_may_be_absent():
    optional = ["architectures", "layer_types", *FIXED_VALUES]
    config = OuroConfig.from_json(changed(**dict.fromkeys(optional, GONE)))
    assert config == OuroConfig.from_json(TINY)


def test_key_value_heads_default_to_the_query_heads():
    for value in (None, GONE):
        assert OuroConfig.from_json(changed(num_key_value_heads=value)).num_key_value_heads == 4


def test_the_head_size_defaults_to_an_even_share_of_the_hidden_size():
    for value in (None, GONE):
        assert OuroConfig.from_json(changed(head_dim=value)).head_dim == 8
    with pytest.raises(CheckpointError, match="multiple of num_attention_heads=4"):
        OuroConfig.from_json(changed(head_dim=GONE, hidden_size=34))


@pytest.mark.parametrize(("eos", "ids"), [(0, (0,)), ([0, 3], (0, 3)), (None, ()), (GONE, ())])
def test_end_tokens_may_be_one_a_list_or_none(eos, ids):
    assert OuroConfig.from_json(changed(eos_token_id=eos)).eos_token_ids == ids


@pytest.mark.parametrize("eos", [0, [0, 3], None])
def test_a_config_survives_being_written_and_read(eos):
    config = OuroConfig.from_json(changed(eos_token_id=eos, rope_theta=1_000_000))
    assert OuroConfig.from_json(json.loads(json.dumps(config.to_mapping()))) == config


def test_a_changed_copy_is_checked_again():
    with pytest.raises(CheckpointError, match="head_dim=9"):
        msgspec.structs.replace(OuroConfig.from_json(TINY), head_dim=9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[1]", "JSON object"),
        ('{"model_type": "ouro", "model_type": "ouro"}', "twice"),
        (b"\xff\xfe", "not valid JSON"),
    ],
)
def test_an_unreadable_config_is_named(tmp_path, text, says):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for source in (path, tmp_path, str(tmp_path)):
        with pytest.raises(CheckpointError, match=says) as refusal:
            OuroConfig.from_json(source)
        assert str(path) in str(refusal.value)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        OuroConfig.from_json(tmp_path)
