"""What a looped Ouro checkpoint says of itself: config.json, read strictly.

Only values and rules live here, and no tensors: a key this code does not know, or a value it cannot
honour, is refused in one sentence rather than ignored.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from rlt_fsm.errors import CheckpointError

from .shape import ModelShape

ARCHITECTURE = "OuroForCausalLM"

# Keys that other tools write and that change nothing here.
IGNORED_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",
        "max_window_layers",
        "model_type",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)

# key: (the only value this code can honour, the rule in words). Absent means that value.
FIXED_VALUES: dict[str, tuple[object, str]] = {
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
_OPTIONAL = (
    "num_key_value_heads",
    "head_dim",
    "initializer_range",
    "early_exit_threshold",
    "bos_token_id",
    "pad_token_id",
)
_KNOWN_KEYS = (
    IGNORED_KEYS | FIXED_VALUES.keys() | {*_REQUIRED, *_OPTIONAL, "eos_token_id", "layer_types"}
)

# Beyond any model there is; asked before modules are made, which takes time for each layer.
_MOST = {"num_hidden_layers": 4096, "total_ut_steps": 1024}
_MOST_ELSEWHERE, _MOST_NUMBER = 2**31 - 1, 2**62


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
            _require_positive_int(key, getattr(self, key))
        for key in _POSITIVE_FLOATS:
            value = getattr(self, key)
            if not _is_number(value) or not 0 < value <= _MOST_NUMBER:
                raise _broken(key, value, "must be a number above 0, and 2**62 at most")
        threshold = self.early_exit_threshold
        if not _is_number(threshold) or not 0 <= threshold <= 1:
            raise _broken("early_exit_threshold", threshold, "must be in [0, 1]")
        if self.head_dim % 2:
            raise _broken("head_dim", self.head_dim, "must be even: rotary halves the head")
        if self.num_attention_heads % self.num_key_value_heads:
            raise _broken(
                "num_key_value_heads",
                self.num_key_value_heads,
                f"must divide num_attention_heads={self.num_attention_heads}",
            )
        for key in ("bos_token_id", "pad_token_id"):
            if (token := getattr(self, key)) is not None:
                self._require_token(key, token)
        for token in self.eos_token_ids:
            self._require_token("eos_token_id", token)

    def _require_token(self, key: str, token: object) -> None:
        if not _is_int(token) or not 0 <= token < self.vocab_size:
            raise _broken(key, token, f"must be a token id in [0, {self.vocab_size}) or null")

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
        data = source if isinstance(source, Mapping) else read_json_object(_config_path(source))
        _check_kind(data)
        for key in _REQUIRED:
            if key not in data:
                raise CheckpointError(f"config.json lacks the key {key}: it must be given")
        values = {key: data[key] for key in (*_REQUIRED, *_OPTIONAL) if key in data}
        if values.get("num_key_value_heads") is None:
            values["num_key_value_heads"] = data["num_attention_heads"]
        if values.get("head_dim") is None:
            values["head_dim"] = _derived_head_dim(data)
        return cls(**values, eos_token_ids=_eos_ids(data.get("eos_token_id")))

    def to_mapping(self) -> dict[str, Any]:
        """The object that config.json holds; `from_json` reads it back to an equal config."""
        values = msgspec.to_builtins(self)
        eos = list(values.pop("eos_token_ids"))
        fixed = {key: value for key, (value, _) in FIXED_VALUES.items()}
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "ouro",
            **values,
            "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
            **fixed,
        }


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, every key once; raises CheckpointError naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique_pairs)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: give a folder with {path.name}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(data).__name__}")
    return data


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return data


def _config_path(source: str | Path) -> Path:
    path = Path(source)
    return path / "config.json" if path.is_dir() else path


def _check_kind(data: Mapping[str, Any]) -> None:
    """Refuse what is not an Ouro model, or one that needs what this code does not do."""
    if data.get("model_type") != "ouro":
        raise _broken("model_type", data.get("model_type"), "only 'ouro' is supported")
    if data.get("architectures") not in (None, [ARCHITECTURE]):
        rule = f"only ['{ARCHITECTURE}'] is supported"
        raise _broken("architectures", data["architectures"], rule)
    for key, (wanted, rule) in FIXED_VALUES.items():
        value = data.get(key, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise _broken(key, value, rule)
    layer_types = data.get("layer_types")
    if layer_types is not None and not _all_full_attention(layer_types):
        raise _broken("layer_types", layer_types, "every entry must be 'full_attention'")
    for key, value in data.items():
        if key not in _KNOWN_KEYS:
            raise _broken(key, value, "this key is unknown; remove it if it changes nothing")


def _all_full_attention(layer_types: object) -> bool:
    return isinstance(layer_types, list) and all(kind == "full_attention" for kind in layer_types)


def _derived_head_dim(data: Mapping[str, Any]) -> int:
    hidden, heads = data["hidden_size"], data["num_attention_heads"]
    _require_positive_int("hidden_size", hidden)
    _require_positive_int("num_attention_heads", heads)
    if hidden % heads:
        raise _broken("hidden_size", hidden, f"must be a multiple of num_attention_heads={heads}")
    return int(hidden // heads)


def _eos_ids(eos: object) -> tuple[int, ...]:
    if eos is None:
        return ()
    if isinstance(eos, list | tuple):
        return tuple(eos)
    if _is_int(eos):
        return (eos,)
    raise _broken("eos_token_id", eos, "must be a token id, a list of token ids, or null")


def _require_positive_int(key: str, value: object) -> None:
    if not _is_int(value) or value < 1:
        raise _broken(key, value, "must be a whole number of 1 or more")
    if value > (most := _MOST.get(key, _MOST_ELSEWHERE)):
        raise _broken(key, value, f"must be {most:,} or less")


def _broken(key: str, value: object, rule: str) -> CheckpointError:
    return CheckpointError(f"config.json: {key}={value!r}: {rule}")


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
