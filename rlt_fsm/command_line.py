"""What `rlt-fsm` and `rlt-audit` are made of: a program of commands that answers a slip of the pen
with one sentence and the nearest name, and completes words in the shell.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperGroup

from .command_output import Status, guarded_stdout, say_mistake
from .version import engine_version
from .wording import did_you_mean

# typer exports this one usage error; its base is what all of them have in common.
_USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)


class Program(TyperGroup):
    """The commands of one program.

    A word that is none of them, an option that a command lacks and a value that it cannot take each
    end with one sentence on stderr and status 2.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            instead = did_you_mean(args[0], known) or f"{ctx.info_name} has {', '.join(known)}"
            ctx.fail(f"no such command '{args[0]}': {instead}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002  # typer calls it so
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002  # the same
        **extra: Any,
    ) -> Any:
        """Run the command that the words ask for, and end with its status."""
        del windows_expand_args  # POSIX only
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except _USAGE_ERROR as error:
            if not standalone_mode:
                raise
            say_mistake(sentence_of(error))
            sys.exit(Status.USAGE)
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else Status.WELL)
        return status


def sentence_of(error: Any) -> str:
    """What a usage error says, as one sentence that names a remedy."""
    context = getattr(error, "ctx", None)
    sentence = error.format_message().strip().removesuffix(".").replace("Value error, ", "")
    sentence = f"{sentence[0].lower()}{sentence[1:]}"
    if context is None:
        return sentence
    see_help = f"see {context.command_path} --help"
    if sentence.startswith("no such option"):
        parameters = context.command.get_params(context)
        known = [name for parameter in parameters for name in parameter.opts]
        option = error.option_name
        return f"no such option {option}: {did_you_mean(option, known) or see_help}"
    is_short = sentence.startswith(("got unexpected", "missing "))
    return f"{sentence}: {see_help}" if is_short else sentence


def new_group(name: str, about: str) -> typer.Typer:
    """Commands that begin with the same word; without another one it shows its help."""
    app = typer.Typer(name=name, cls=Program, rich_markup_mode=None)

    @app.callback(invoke_without_command=True, help=about)
    def _root(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def new_program(name: str, about: str) -> typer.Typer:
    """A program without commands yet: plain help, also as -h, and completion for the shell.

    Without a word it shows its help, which is `about`.
    """
    app = typer.Typer(
        cls=Program,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True, help=about)
    def _root(
        context: typer.Context,
        *,
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.")
        ] = False,
    ) -> None:
        if version:
            typer.echo(f"{name} {engine_version()}")
        elif context.invoked_subcommand is None:
            typer.echo(context.get_help())
        else:
            return
        raise typer.Exit(Status.WELL)

    return app


def console_script(app: typer.Typer, name: str) -> Callable[[], None]:
    """The entry point of a program."""

    def main() -> None:
        """Run the program on what was typed."""
        if sys.stderr is None:  # the caller closed it, as schedulers of jobs do
            sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the end
        with guarded_stdout():
            app(prog_name=name)

    return main
