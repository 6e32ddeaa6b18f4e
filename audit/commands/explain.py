"""`rlt-audit explain`: why a request waited, and what let it go on."""

from typing import Annotated

import typer

from audit.explain import Explanation, explain
from audit.replay import replay
from audit.words import shown

from .common import mistakes_in_one_sentence, print_json

HELP = """Explain why a request did, or did not, run: who held what it needed, and what changed.

Example: rlt-audit explain run.db --request a --step 7

Without --step: where over its life it waited longest, and why. An id that was used again has a
generation: a#2 is the second use of a.

Exit status: 0, or 2 where the log cannot be read or has no such request or step.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="explain", help=HELP)(_explain)


def _explain(
    db: Annotated[str, typer.Argument(help="The log: a file or a database URL.", metavar="DB")],
    request: Annotated[str, typer.Option(help="The request.", metavar="ID[#GENERATION]")],
    step: Annotated[int | None, typer.Option(help="Ask about this step.", metavar="N")] = None,
    run: Annotated[
        int | None, typer.Option(help="The run; by default the newest.", metavar="N")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence(), replay(db, run) as opened:
        answer = explain(opened, request, step)
    if as_json:
        print_json(answer)
    else:
        typer.echo(render(answer))


def render(answer: Explanation) -> str:
    """The answer as text, one sentence a line."""
    return "\n".join(shown(sentence) for sentence in answer.sentences)
