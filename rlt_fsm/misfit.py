"""Says in one sentence what of some JSON-like data does not fit a type: place, value, what would.

The codec finds the misfit and tells place and kind; the value and the choices are looked up here.
"""

import re
from typing import Any

import msgspec
from msgspec import inspect

from .wording import did_you_mean

_SHOWN_CHARS = 60


def sentence(error: msgspec.ValidationError, data: object, kind: type) -> str:
    """What is wrong with `data`, which msgspec could not read as `kind`.

    `scheduler.mode='mixd': expected one of 'refill', 'no_refill', 'mixed'`
    """
    message, _, path = str(error).partition(" - at `")
    path = path.removesuffix("`").removeprefix("$")
    steps = [name or int(index) for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path)]
    is_named = "[...]" not in path  # msgspec does not tell which value of a mapping it was
    kinds = _kinds_at(inspect.type_info(kind), path)
    place = path.removeprefix(".") or "top level"
    if message.startswith("Object "):
        known = f"; {_instead(message, _fields(kinds))}" if "unknown" in message else ""
        message = message.replace("Object contains unknown field `", "unknown key `")
        message = message.replace("Object missing required field `", "missing key `")
        return f"{place}: {message}{known}".replace("`", "'")
    value = _shown(data, steps) if is_named else ""
    choices = _choices(kinds)
    if choices and message.startswith("Invalid enum value "):
        wrong = message.removeprefix("Invalid enum value ") if not value else ""
        message = f"{wrong}: expected one of " if wrong else "expected one of "
        message += ", ".join(map(repr, choices))
    return f"{place}{value}: {message[0].lower()}{message[1:]}".replace("`", "'")


def _shown(data: object, steps: list[str | int]) -> str:
    """`=value`, where it is a short one."""
    value: Any = data
    try:
        for step in steps:
            value = value[step]
    except (LookupError, TypeError):
        return ""
    text = repr(value)
    return f"={text}" if not isinstance(value, dict | list) and len(text) <= _SHOWN_CHARS else ""


def _kinds_at(top: inspect.Type, path: str) -> list[inspect.Type]:
    """The types that may stand at a path; of a union its members."""
    kinds = _members(top)
    for name, _ in re.findall(r"\.(\w+)|(\[[^]]*\])", path):
        found = [inner for kind in kinds for inner in _inside(kind, name)]
        kinds = [member for kind in found for member in _members(kind)]
    return kinds


def _inside(kind: inspect.Type, name: str) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields) if name:
            return [field.type for field in fields if field.encode_name == name]
        case inspect.DictType(value_type=value):
            return [value]
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [item]
        case _:
            return []


def _members(kind: inspect.Type) -> list[inspect.Type]:
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _instead(message: str, known: list[str]) -> str:
    """What may have been meant by an unknown key, else all keys that there are."""
    _, _, key = message.removesuffix("`").rpartition("`")
    return did_you_mean(key, known) or f"known: {', '.join(known)}"


def _fields(kinds: list[inspect.Type]) -> list[str]:
    structs = (kind for kind in kinds if isinstance(kind, inspect.StructType))
    return sorted(field.encode_name for struct in structs for field in struct.fields)


def _choices(kinds: list[inspect.Type]) -> list[str]:
    chosen: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            chosen += map(str, kind.values)
        elif isinstance(kind, inspect.EnumType):
            chosen += (str(member.value) for member in kind.cls)
    return chosen
