"""The command-line page, from the declarations that also make `--help`."""

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from audit.cli import app as audit_app
from runner.cli import app as engine_app

from .markdown import Block, code, fenced, table

APPS: dict[str, typer.Typer] = {"rlt-fsm": engine_app, "rlt-audit": audit_app}


class Parameter(typing.NamedTuple):
    """One argument or option as a person types it; `default` as text, empty where there is none."""

    spelling: str
    default: str
    help: str
    is_option: bool


def commands(program: str) -> Iterator[tuple[str, str, list[Parameter]]]:
    """Every command of a program: as it is typed, its help, its parameters."""
    yield from _commands(program, APPS[program])


def _commands(typed: str, app: typer.Typer) -> Iterator[tuple[str, str, list[Parameter]]]:
    for info in app.registered_commands:
        assert info.callback is not None
        name = info.name or info.callback.__name__.replace("_", "-")
        text = info.help or inspect.getdoc(info.callback) or ""
        yield f"{typed} {name}", text, list(_parameters(info.callback))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(f"{typed} {group.typer_instance.info.name}", group.typer_instance)


def _parameters(callback: Callable[..., Any]) -> Iterator[Parameter]:
    for name, parameter in inspect.signature(callback, eval_str=True).parameters.items():
        annotation, *notes = typing.get_args(parameter.annotation)
        info = next(note for note in notes if isinstance(note, ArgumentInfo | OptionInfo))
        if getattr(info, "hidden", False):
            continue
        if isinstance(info, OptionInfo):
            spelling = _option(name, annotation, info)
        else:
            spelling = info.metavar or name.upper()
        default = parameter.default
        has_default = default not in (None, inspect.Parameter.empty, ...) and default is not False
        yield Parameter(
            spelling=spelling,
            default=str(default) if has_default else "",
            help=" ".join((info.help or "").split()),
            is_option=isinstance(info, OptionInfo),
        )


def _option(name: str, annotation: object, info: OptionInfo) -> str:
    # Inside Annotated the first name given lands where a default would.
    given = [str(info.default)] if isinstance(info.default, str) else []
    flags = [*given, *(info.param_decls or ())] or [f"--{name.replace('_', '-')}"]
    if annotation is bool:
        return ", ".join(flags)
    return f"{', '.join(flags)} {info.metavar or _metavar(annotation)}"


def _metavar(annotation: object) -> str:
    if isinstance(annotation, types.UnionType):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    names = {int: "INTEGER", float: "FLOAT", str: "TEXT"}
    return names.get(annotation, "VALUE") if isinstance(annotation, type) else "VALUE"


# ---- pages -----------------------------------------------------------------------------------


def _page(program: str) -> str:
    return "\n\n".join(_section(*command) for command in commands(program))


def _section(name: str, text: str, parameters: list[Parameter]) -> str:
    parts = [f"### {name}", _text(text)]
    arguments = [p for p in parameters if not p.is_option]
    options = [p for p in parameters if p.is_option]
    if arguments:
        rows = [[code(p.spelling), p.help] for p in arguments]
        parts.append(table(["argument", "meaning"], rows))
    if options:
        rows = [[code(p.spelling), code(p.default), p.help] for p in options]
        parts.append(table(["option", "default", "meaning"], rows))
    return "\n\n".join(parts)


def _text(help_text: str) -> str:
    """Help as Markdown: an example becomes a code block."""
    parts = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        line = " ".join(paragraph.split())
        before, example, after = line.partition("Example: ")
        if before.strip():
            parts.append(before.strip())
        if example:
            parts.append(fenced(after, "sh"))
    return "\n\n".join(parts)


BLOCKS: dict[str, Block] = {
    "cli-rlt-fsm": lambda: _page("rlt-fsm"),
    "cli-rlt-audit": lambda: _page("rlt-audit"),
}
