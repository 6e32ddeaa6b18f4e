"""What a Huginn checkpoint (recurrent depth, `huginn_raven`) says of itself: config.json, strictly.

Only values and rules live here, and no tensors. Huginn: J. Geiping et al., "Scaling up Test-Time
Compute with Latent Reasoning", 2025 (arXiv 2502.05171).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from . import config_rules as rules
from .config_rules import FixedValues, broken
from .shape import ModelShape

MODEL_TYPE, ARCHITECTURE = "huginn_raven", "RavenForCausalLM"

FIXED_VALUES: FixedValues = {
    "architecture_class_name": ("RecurrentGPT", "only 'RecurrentGPT' is supported"),
    "block_class_name": ("SandwichBlock", "only 'SandwichBlock' is supported"),
    "norm_class_name": ("RMSNorm_llama", "only 'RMSNorm_llama' is supported"),
    "mlp_class_name": ("GatedMLP", "only 'GatedMLP' is supported"),
    "nonlin_name": ("SiLU", "only 'SiLU' is supported"),
    "injection_type": ("linear", "only 'linear' is supported"),
    "state_init": ("like-init", "only 'like-init' is supported"),
    "qk_bias": (True, "must be true: queries and keys have learned biases"),
    "bias": (False, "must be false: the adapter has no bias"),
    "tie_embeddings": (True, "must be true: the head is the embedding"),
    "tie_word_embeddings": (True, "must be true: the head is the embedding"),
    "test_time_noise": (0, "must be 0: no noise is added between loops"),
}
# How it was trained, and how its sizes were chosen.
_TRAINING_KEYS = frozenset(
    {
        "activation_checkpoint_impl",
        "effective_expected_depth",
        "hf_config",
        "init_orthogonal",
        "init_strategy",
        "mean_backprop_depth",
        "name",
        "padding_multiple",
        "sampling_scheme",
        "test_time_noise_type",
    }
)
_REQUIRED = (
    "n_embd",
    "n_heads",
    "intermediate_size",
    "n_layers_in_prelude",
    "n_layers_in_recurrent_block",
    "n_layers_in_coda",
    "mean_recurrence",
    "block_size",
    "vocab_size",
    "norm_eps",
    "rope_base",
)
_TOKENS = ("bos_token_id", "pad_token_id")
_KNOWN_KEYS = (
    rules.IGNORED_KEYS
    | _TRAINING_KEYS
    | FIXED_VALUES.keys()
    | {
        *_REQUIRED,
        *_TOKENS,
        "eos_token_id",
        "head_dim",
        "init_values",
        "n_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "padded_vocab_size",
    }
)
# Asked before modules are made, which takes time for each layer.
_MOST_LAYERS, _MOST_LOOPS = 4096, 1024


class HuginnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a Huginn model, by config.json's own keys; an instance satisfies every rule.

    `mean_recurrence` is the full loop depth, `block_size` the context in tokens. Raises
    CheckpointError where a value breaks a rule.
    """

    n_embd: int
    n_heads: int
    intermediate_size: int
    n_layers_in_prelude: int
    n_layers_in_recurrent_block: int
    n_layers_in_coda: int
    mean_recurrence: int
    block_size: int
    vocab_size: int
    norm_eps: float = 1e-6
    rope_base: float = 50_000.0
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for key in ("n_embd", "n_heads", "intermediate_size", "block_size", "vocab_size"):
            rules.require_positive_int(key, getattr(self, key))
        for key in ("n_layers_in_prelude", "n_layers_in_recurrent_block", "n_layers_in_coda"):
            rules.require_positive_int(key, getattr(self, key), _MOST_LAYERS)
        rules.require_positive_int("mean_recurrence", self.mean_recurrence, _MOST_LOOPS)
        for key in ("norm_eps", "rope_base"):
            rules.require_positive(key, getattr(self, key))
        if self.n_embd % (2 * self.n_heads):
            rule = f"must be a multiple of 2 x n_heads={self.n_heads}: rotary turns pairs"
            raise broken("n_embd", self.n_embd, rule)
        single = {key: getattr(self, key) for key in _TOKENS}
        rules.require_tokens(single, self.eos_token_ids, self.vocab_size)

    @property
    def head_dim(self) -> int:
        """Numbers of one head."""
        return self.n_embd // self.n_heads

    @property
    def embed_scale(self) -> float:
        """What embeddings and initial states are multiplied by: sqrt(n_embd)."""
        return math.sqrt(self.n_embd)

    @property
    def state_std(self) -> float:
        """Standard deviation of an initial state before scaling: sqrt(2 / (5 n_embd))."""
        return math.sqrt(2 / (5 * self.n_embd))

    @property
    def architecture(self) -> str:
        """As config.json spells it."""
        return ARCHITECTURE

    @property
    def shape(self) -> ModelShape:
        """The sizes that serving needs: a token carries its state and its embedded input."""
        return ModelShape(
            depths=self.mean_recurrence,
            layers=self.n_layers_in_recurrent_block,
            hidden_size=self.n_embd,
            intermediate_size=self.intermediate_size,
            heads=self.n_heads,
            kv_heads=self.n_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            context=self.block_size,
            eos_token_ids=self.eos_token_ids,
            state_size=2 * self.n_embd,
            prelude_layers=self.n_layers_in_prelude,
            coda_layers=self.n_layers_in_coda,
            is_seeded=True,
        )

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> "HuginnConfig":
        """The configuration in a config.json, in the folder that holds one, or in its object.

        Raises:
            CheckpointError: unreadable, a missing or unknown key, or a value that breaks its rule.
        """
        data = rules.config_mapping(source)
        rules.check_kind(data, MODEL_TYPE, ARCHITECTURE)
        rules.check_fixed(data, FIXED_VALUES)
        rules.check_known(data, _KNOWN_KEYS)
        rules.check_given(data, _REQUIRED)
        values = {key: data[key] for key in (*_REQUIRED, *_TOKENS) if key in data}
        config = cls(**values, eos_token_ids=rules.eos_ids(data.get("eos_token_id")))
        config._check_derived(data)
        return config

    def _check_derived(self, data: Mapping[str, Any]) -> None:
        """Keys that say again what others say must say the same."""
        layers = self.n_layers_in_prelude + self.n_layers_in_recurrent_block + self.n_layers_in_coda
        derived = {
            "n_layers": (layers, "the sum of its parts"),
            "head_dim": (self.head_dim, "n_embd / n_heads"),
            "num_attention_heads": (self.n_heads, "n_heads"),
            "num_key_value_heads": (self.n_heads, "n_heads: K and V have a head for each query's"),
            "padded_vocab_size": (self.vocab_size, "vocab_size"),
        }
        for key, (count, what) in derived.items():
            if data.get(key, count) != count:
                raise broken(key, data[key], f"must be {count}, {what}")
        given = data.get("init_values") or {}
        for key, number in (("std", self.state_std), ("embed_scale", self.embed_scale)):
            told = given.get(key, number) if isinstance(given, Mapping) else None
            if not rules.is_number(told) or not math.isclose(told, number, rel_tol=1e-6):
                raise broken("init_values", given, f"{key} must be {number}, which n_embd gives")

    def to_mapping(self) -> dict[str, Any]:
        """The object that config.json holds; `from_json` reads it back to an equal config."""
        values = msgspec.to_builtins(self)
        eos = list(values.pop("eos_token_ids"))
        return {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            **values,
            "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
            **{key: value for key, (value, _) in FIXED_VALUES.items()},
        }
