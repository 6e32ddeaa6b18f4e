"""`rlt-audit`: the composition root that puts the commands together."""

import typer

from .commands import explain, state, timeline, verify, watch

app = typer.Typer(
    name="rlt-audit",
    help="Check and question the event logs of rlt-fsm. Example: rlt-audit verify run.db",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Keep the commands' names, however few there are."""


for command in (verify, watch, state, timeline, explain):
    command.register(app)


def main() -> None:
    """The console script."""
    app(prog_name="rlt-audit")
