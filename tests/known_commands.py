"""Every command of both programs as typer knows it, for tests that hold for each of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from audit.cli import app as audit_app
from runner.cli import app as engine_app

PROGRAMS = {"rlt-fsm": engine_app, "rlt-audit": audit_app}


class Known(NamedTuple):
    """A command as it is typed, and what typer makes of it."""

    program: str
    words: tuple[str, ...]
    command: Any

    @property
    def options(self) -> dict[str, Any]:
        return {
            name: parameter
            for parameter in self.command.params
            if parameter.param_type_name == "option"
            for name in parameter.opts
        }


def walked(program: str, command: Any, words: tuple[str, ...] = ()) -> Iterator[Known]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield Known(program, words, command)
        return
    for name, child in inner.items():
        yield from walked(program, child, (*words, name))


COMMANDS = [known for name, app in PROGRAMS.items() for known in walked(name, get_command(app))]
every_command = pytest.mark.parametrize(
    "known", COMMANDS, ids=lambda known: " ".join((known.program, *known.words))
)


def typed(known: Known, *words: str) -> Any:
    return called(known.program, *known.words, *words)


def called(program: str, *words: str) -> Any:
    return CliRunner().invoke(PROGRAMS[program], words, prog_name=program)
