"""Reading config.json strictly: the JSON itself, and rules that every architecture's keys share.

A key that is not known, or a value that cannot be honoured, is refused in one sentence.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from rlt_fsm.errors import CheckpointError

# Keys that other tools write and that change nothing here.
IGNORED_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",
        "model_type",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)

# key: (the only value that can be honoured, the rule in words). Absent means that value.
FixedValues = Mapping[str, tuple[object, str]]

MOST_NUMBER = 2**62  # beyond any model there is
MOST_INT = 2**31 - 1


# ---- files ---------------------------------------------------------------------------------------


def config_mapping(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """The object in a config.json, in the folder that holds one, or as it is given.

    Raises:
        CheckpointError: it cannot be read.
    """
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    return read_json_object(path / "config.json" if path.is_dir() else path)


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


# ---- an object's keys ----------------------------------------------------------------------------


def check_kind(data: Mapping[str, Any], model_type: str, architecture: str) -> None:
    """Refuse another kind of model."""
    if data.get("model_type") != model_type:
        rule = f"only {model_type!r} is supported"
        raise broken("model_type", data.get("model_type"), rule)
    if data.get("architectures") not in (None, [architecture]):
        raise broken(
            "architectures", data["architectures"], f"only ['{architecture}'] is supported"
        )


def check_fixed(data: Mapping[str, Any], fixed: FixedValues) -> None:
    """Refuse a value that asks for what no code here does."""
    for key, (wanted, rule) in fixed.items():
        value = data.get(key, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise broken(key, value, rule)


def check_known(data: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a key that might change what is computed."""
    for key, value in data.items():
        if key not in known:
            raise broken(key, value, "this key is unknown; remove it if it changes nothing")


def check_given(data: Mapping[str, Any], required: Collection[str]) -> None:
    """Refuse to guess a size."""
    for key in required:
        if key not in data:
            raise CheckpointError(f"config.json lacks the key {key}: it must be given")


# ---- values --------------------------------------------------------------------------------------


def require_positive_int(key: str, value: object, most: int = MOST_INT) -> None:
    """A count."""
    if not is_int(value) or value < 1:
        raise broken(key, value, "must be a whole number of 1 or more")
    if value > most:
        raise broken(key, value, f"must be {most:,} or less")


def require_positive(key: str, value: object) -> None:
    """A number above 0 that can be computed with."""
    if not is_number(value) or not 0 < value <= MOST_NUMBER:
        raise broken(key, value, "must be a number above 0, and 2**62 at most")


def require_tokens(
    single: Mapping[str, object], eos_token_ids: Collection[object], vocab_size: int
) -> None:
    """Token ids of a vocabulary: those of keys that hold one, or None, and those that end."""
    named = [(key, token) for key, token in single.items() if token is not None]
    for key, token in [*named, *(("eos_token_id", token) for token in eos_token_ids)]:
        if not is_int(token) or not 0 <= token < vocab_size:
            raise broken(key, token, f"must be a token id in [0, {vocab_size}) or null")


def eos_ids(eos: object) -> tuple[int, ...]:
    """`eos_token_id` as one token, several or none."""
    if eos is None:
        return ()
    if isinstance(eos, list | tuple):
        return tuple(eos)
    if is_int(eos):
        return (eos,)
    raise broken("eos_token_id", eos, "must be a token id, a list of token ids, or null")


def broken(key: str, value: object, rule: str) -> CheckpointError:
    """The error that a value breaks a rule."""
    return CheckpointError(f"config.json: {key}={value!r}: {rule}")


def is_int(value: object) -> TypeGuard[int]:
    """A whole number; True is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """A number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
