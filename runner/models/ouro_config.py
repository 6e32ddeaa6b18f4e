"""What a looped Ouro checkpoint says of itself: config.json, read strictly.

Only values and rules live here, and no tensors: a key this code does not know, or a value it cannot
honour, is refused in one sentence rather than ignored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from . import config_rules as rules
from .config_rules import FixedValues, broken
from .shape import ModelShape

MODEL_TYPE, ARCHITECTURE = "ouro", "OuroForCausalLM"

FIXED_VALUES: FixedValues = {
    "hidden_act": ("silu", "only 'silu' is supported"),
    "rope_scaling": (None, "must be null: scaled rotary positions are not supported"),
    "tie_word_embeddings": (False, "must be false: lm_head.weight is stored untied"),
    "attention_dropout": (0, "must be 0"),
    "use_sliding_window": (False, "must be false: every layer attends to the whole sequence"),
    "sliding_window": (None, "must be null: every layer attends to the whole sequence"),
}

_POSITIVE_INTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "total_ut_steps",
)
_POSITIVE_FLOATS = ("initializer_range", "rms_norm_eps", "rope_theta")
_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "total_ut_steps",
)
_TOKENS = ("bos_token_id", "pad_token_id")
_OPTIONAL = (
    "num_key_value_heads",
    "head_dim",
    "initializer_range",
    "early_exit_threshold",
    *_TOKENS,
)
_KNOWN_KEYS = (
    rules.IGNORED_KEYS
    | FIXED_VALUES.keys()
    | {*_REQUIRED, *_OPTIONAL, "eos_token_id", "layer_types", "max_window_layers"}
)

# Beyond any model there is; asked before modules are made, which takes time for each layer.
_MOST = {"num_hidden_layers": 4096, "total_ut_steps": 1024}


class OuroConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a looped Ouro model; an instance always satisfies every rule.

    Sizes are counts of elements; `total_ut_steps` is the full loop depth. `early_exit_threshold` is
    kept but unused: the request's own threshold rules. Raises CheckpointError where a value breaks
    a rule.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    total_ut_steps: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0
    initializer_range: float = 0.02
    early_exit_threshold: float = 1.0
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for key in _POSITIVE_INTS:
            most = _MOST.get(key, rules.MOST_INT)
            rules.require_positive_int(key, getattr(self, key), most)
        for key in _POSITIVE_FLOATS:
            rules.require_positive(key, getattr(self, key))
        threshold = self.early_exit_threshold
        if not rules.is_number(threshold) or not 0 <= threshold <= 1:
            raise broken("early_exit_threshold", threshold, "must be in [0, 1]")
        if self.head_dim % 2:
            raise broken("head_dim", self.head_dim, "must be even: rotary halves the head")
        if self.num_attention_heads % self.num_key_value_heads:
            raise broken(
                "num_key_value_heads",
                self.num_key_value_heads,
                f"must divide num_attention_heads={self.num_attention_heads}",
            )
        single = {key: getattr(self, key) for key in _TOKENS}
        rules.require_tokens(single, self.eos_token_ids, self.vocab_size)

    @property
    def architecture(self) -> str:
        """As config.json spells it."""
        return ARCHITECTURE

    @property
    def shape(self) -> ModelShape:
        """The sizes that serving needs."""
        return ModelShape(
            depths=self.total_ut_steps,
            layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            context=self.max_position_embeddings,
            eos_token_ids=self.eos_token_ids,
            state_size=self.hidden_size,
        )

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> "OuroConfig":
        """The configuration in a config.json, in the folder that holds one, or in its object.

        Raises:
            CheckpointError: unreadable, a missing or unknown key, or a value that breaks its rule.
        """
        data = rules.config_mapping(source)
        _check(data)
        values = {key: data[key] for key in (*_REQUIRED, *_OPTIONAL) if key in data}
        if values.get("num_key_value_heads") is None:
            values["num_key_value_heads"] = data["num_attention_heads"]
        if values.get("head_dim") is None:
            values["head_dim"] = _derived_head_dim(data)
        return cls(**values, eos_token_ids=rules.eos_ids(data.get("eos_token_id")))

    def to_mapping(self) -> dict[str, Any]:
        """The object that config.json holds; `from_json` reads it back to an equal config."""
        values = msgspec.to_builtins(self)
        eos = list(values.pop("eos_token_ids"))
        fixed = {key: value for key, (value, _) in FIXED_VALUES.items()}
        return {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            **values,
            "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
            **fixed,
        }


def _check(data: Mapping[str, Any]) -> None:
    """Refuse what is not an Ouro model, or one that needs what this code does not do."""
    rules.check_kind(data, MODEL_TYPE, ARCHITECTURE)
    rules.check_fixed(data, FIXED_VALUES)
    layer_types = data.get("layer_types")
    if layer_types is not None and not _all_full_attention(layer_types):
        raise broken("layer_types", layer_types, "every entry must be 'full_attention'")
    rules.check_known(data, _KNOWN_KEYS)
    rules.check_given(data, _REQUIRED)


def _all_full_attention(layer_types: object) -> bool:
    return isinstance(layer_types, list) and all(kind == "full_attention" for kind in layer_types)


def _derived_head_dim(data: Mapping[str, Any]) -> int:
    hidden, heads = data["hidden_size"], data["num_attention_heads"]
    rules.require_positive_int("hidden_size", hidden)
    rules.require_positive_int("num_attention_heads", heads)
    if hidden % heads:
        raise broken("hidden_size", hidden, f"must be a multiple of num_attention_heads={heads}")
    return int(hidden // heads)
