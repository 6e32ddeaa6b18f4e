"""`rlt-fsm bench`: its options, its tables, its exit status.

A part of the composition root `cli.py`; what is measured lives in `bench/`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from rlt_fsm.command_output import Status, mistakes_in_one_sentence
from rlt_fsm.errors import ConfigError
from rlt_fsm.log import EventLog
from rlt_fsm.progress_line import ProgressLine

from .bench.plan import Plan
from .simulate_check import Failure
from .terminal import log_to_stderr

USUAL: Final = Plan()  # what is measured unless options say otherwise
Judge = Callable[[EventLog], Sequence[Failure]]
Model = Annotated[str, typer.Option(metavar="NAME", help="ouro-1.4b or tiny; random weights.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda[:N].")]
Arms = Annotated[
    list[str],
    typer.Option(
        "--arm",
        metavar="NAME",
        help="eager, graphed, full, adaptive, full-sync, adaptive-sync, full-in-step, "
        "full-in-step-sync, no-refill, log-off or full-log-off; repeat it.",
    ),
]
Shapes = Annotated[
    list[str],
    typer.Option(
        "--shape", metavar="NAME", help="512/128, 128/512, mixed or tiny: prompt and outputs."
    ),
]
Widths = Annotated[
    list[int], typer.Option("--width", metavar="N", help="Requests at a time; repeat it.")
]
Repeats = Annotated[int, typer.Option(metavar="N", help="Interleaved repeats of every arm.")]
Requests = Annotated[int, typer.Option(metavar="N", help="Requests for each slot.")]
InFlight = Annotated[
    int, typer.Option(metavar="N", help="Tickets in flight (execution.max_in_flight).")
]
NoSteps = Annotated[bool, typer.Option("--no-steps", help="Do not time single decode steps.")]
Seconds = Annotated[
    float | None, typer.Option(metavar="S", min=0, help="Begin no further run after so long.")
]
LogIn = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Where logs are written, to compare disks: /dev/shm, say."),
]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write the figures here, as JSON.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def make_bench(judge: Judge) -> Callable[..., None]:
    """The command; `judge` audits the log of an arm."""

    def bench(
        *,
        model: Model = USUAL.model,
        device: Device = USUAL.device,
        arms: Arms = list(USUAL.arms),  # noqa: B006 (typer copies it)
        shapes: Shapes = list(USUAL.shapes),  # noqa: B006 (the same)
        widths: Widths = list(USUAL.widths),  # noqa: B006 (the same)
        repeats: Repeats = USUAL.repeats,
        requests: Requests = USUAL.requests,
        in_flight: InFlight = USUAL.in_flight,
        no_steps: NoSteps = False,
        seconds: Seconds = None,
        log_in: LogIn = None,
        out: Out = None,
        json: Json = False,
    ) -> None:
        """Measure decode steps against bandwidth, and arms over one list of requests.

        Random weights in a model's exact shape; depths are forced (exit.mode trace) with the gate
        computed and read back. Each arm checks its depths, its tokens and its log. Exit status 1
        if a check fails.

        Example: rlt-fsm bench --model tiny --shape tiny --arm full --width 4 --repeats 1
        """
        plan = Plan(
            model=model,
            device=device,
            arms=tuple(arms),
            shapes=tuple(shapes),
            widths=tuple(widths),
            repeats=repeats,
            requests=requests,
            in_flight=in_flight,
            steps=not no_steps,
            seconds=seconds,
            log_in=log_in,
        )
        _measure(plan, judge, out, as_json=json)

    return bench


def _measure(plan: Plan, judge: Judge, out: str | None, *, as_json: bool) -> None:
    log_to_stderr("warning")
    status = ProgressLine()
    with mistakes_in_one_sentence():
        if out is not None and not Path(out).absolute().parent.is_dir():
            raise ConfigError(f"--out {out}: its folder does not exist: make it")
        from .bench.arms import run_plan  # noqa: PLC0415  # torch loads only here
        from .bench.tables import as_text  # noqa: PLC0415  # the same

        result = run_plan(plan, judge, status.show, partial(_keep, out))
        status.clear()
    typer.echo(_as_json(result) if as_json else as_text(result))
    has_failed = any(line.problems for line in result.arms)
    raise typer.Exit(Status.NO if has_failed else Status.WELL)


def _as_json(result: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode()


def _keep(out: str | None, result: msgspec.Struct) -> None:
    if out is None:
        return
    try:
        Path(out).write_text(_as_json(result) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: it cannot be written ({error.strerror})") from error
