"""The configuration page: fields, types and defaults from the code, meanings from `field_words.py`.

A field without a meaning, or a meaning without a field, stops the generator.
"""

import typing
from typing import Any

import msgspec

from rlt_fsm.config import (
    FORBIDDEN,
    NOT_YET,
    CacheConfig,
    ExecutionConfig,
    ExitConfig,
    Rule,
    SchedulerConfig,
    SpeculativeConfig,
)
from rlt_fsm.params import SamplingParams

from .field_words import MEANINGS
from .markdown import Block, code, table

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "scheduler": SchedulerConfig,
    "cache": CacheConfig,
    "execution": ExecutionConfig,
    "exit": ExitConfig,
    "speculative": SpeculativeConfig,
    "sampling": SamplingParams,
}


def _fields(section: str) -> str:
    struct, meanings = SECTIONS[section], MEANINGS[section]
    fields = msgspec.structs.fields(struct)
    names = {field.name for field in fields}
    assert names == meanings.keys(), f"{section}: {sorted(names ^ meanings.keys())} in one only"
    rows = [
        [code(field.name), _type(field.type), _default(field), meanings[field.name]]
        for field in fields
    ]
    return table(["field", "type", "default", "meaning"], rows)


def _type(annotation: Any) -> str:
    """A type as a reader of JSON would say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(code(choice) for choice in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    if arguments:  # a union with None
        return " or ".join(_type(argument) for argument in arguments)
    return {int: "integer", float: "number", bool: "boolean", type(None): "null"}[annotation]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "required"
    return code(msgspec.json.encode(field.default).decode().replace('"', ""))


def _sentences(rules: tuple[Rule, ...]) -> str:
    return "\n".join(f"- {sentence}" for _, sentence in rules)


BLOCKS: dict[str, Block] = {
    **{
        f"config-{section}": lambda section=section: _fields(section)  # type: ignore[misc]
        for section in SECTIONS
    },
    "config-forbidden": lambda: _sentences(FORBIDDEN),
    "config-not-yet": lambda: _sentences(NOT_YET),
}
