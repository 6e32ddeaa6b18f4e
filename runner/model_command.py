"""`rlt-fsm model`: its options, its output, its exit status; a part of the composition root.

What is told and what is checked lives in `model_inspect.py` and `model_check.py`.
"""

from typing import Annotated

import msgspec
import typer

from rlt_fsm.command_line import new_group
from rlt_fsm.command_output import Status, mistakes_in_one_sentence
from rlt_fsm.progress_line import ProgressLine

from .terminal import log_to_stderr

model_app = new_group("model", "Look at a checkpoint before serving it.")

Path = Annotated[
    str,
    typer.Argument(metavar="PATH", help="demo, a folder in Hugging Face layout, or a hub id."),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda[:N].")]
Dtype = Annotated[
    str, typer.Option(metavar="NAME", help="auto, float32, bfloat16 or float16; as it is served.")
]
Prompt = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What is served.  [default: some token ids]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@model_app.command("inspect")
def inspect(
    path: Path, *, device: Device = "auto", dtype: Dtype = "auto", json: Json = False
) -> None:
    """Tell what a model is, what its KV takes, and whether it can be served here.

    Nothing but configuration and headers is read; of a hub id only its small JSON files are
    fetched.

    Example: rlt-fsm model inspect demo
    """
    with mistakes_in_one_sentence("nothing was changed"):
        from .model_inspect import inspect_model, report_as_text  # noqa: PLC0415  # loads torch

        report = inspect_model(path, device=device, dtype=dtype)
    typer.echo(_as_json(report) if json else report_as_text(report))
    raise typer.Exit(Status.WELL)


@model_app.command("check")
def check(
    path: Path,
    *,
    device: Device = "auto",
    dtype: Dtype = "auto",
    prompt: Prompt = None,
    json: Json = False,
) -> None:
    """Check every tensor, then serve a prompt and compare it with the plain forward.

    Missing, extra and misshapen tensors, wrong dtypes, NaN and infinities are told. The prompt is
    served in chunks, at full depth and with early exits; the plain forward runs on the CPU in
    float32. Exit status 1 if anything is wrong.

    Example: rlt-fsm model check demo
    """
    line = ProgressLine()
    log_to_stderr("warning", line)
    with mistakes_in_one_sentence("nothing was changed"), line:
        from .model_check import check_as_text, check_model  # noqa: PLC0415  # loads torch

        report = check_model(path, device=device, dtype=dtype, prompt=prompt, tell=line.show)
    typer.echo(_as_json(report) if json else check_as_text(report))
    raise typer.Exit(Status.WELL if report.ok else Status.NO)


def _as_json(report: msgspec.Struct) -> str:
    return msgspec.json.encode(report).decode()
