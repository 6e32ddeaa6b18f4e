"""The options of `rlt-fsm run`: names, metavars and help. No behaviour lives here."""

from typing import Annotated

import typer

from rlt_fsm import oplog

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="demo, sim, a local folder or a hub id.  [default: demo, or the workload's own]",
    ),
]
Prompts = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="A text to complete; repeat it.  [default: a few sums]"),
]
WorkloadFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Run this rlt-workload/1 file and check its expect."),
]
Database = Annotated[
    str, typer.Option(metavar="FILE", help="The event log: a new run is added to it.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.FIELD=VALUE", help="Change a field of the config; repeat it."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show no progress, also where a person watches.")
]
NoAudit = Annotated[bool, typer.Option("--no-audit", help="Do not audit the log.")]
MaxTokens = Annotated[int | None, typer.Option(help="Most tokens to sample.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus mass.")]
TopK = Annotated[int | None, typer.Option(help="-1 is off.")]
Seed = Annotated[int | None, typer.Option(help="Decides every draw.")]
MinLoops = Annotated[int | None, typer.Option(help="Fewest loops of a token.")]
MaxLoops = Annotated[int | None, typer.Option(help="Most loops of a token.")]
ExitThreshold = Annotated[
    float | None, typer.Option(help="Leave the loop at this exit probability; 1 is never.")
]

LogLevel = Annotated[
    oplog.Level,
    typer.Option(
        metavar="LEVEL",
        envvar=oplog.LEVEL,
        case_sensitive=False,
        help="Log from here on, to stderr: debug, info, warning, error, critical.",
    ),
]
LogFormat = Annotated[
    oplog.Format,
    typer.Option(
        metavar="FORMAT",
        envvar=oplog.FORMAT,
        case_sensitive=False,
        help="How log lines look: console, or json for machines.",
    ),
]
SlowStep = Annotated[
    float,
    typer.Option(
        "--slow-step-ms",
        metavar="MS",
        min=0,
        envvar=oplog.SLOW_STEP_MS,
        help="Warn of a step that takes as long.",
    ),
]
