"""The `rlt-fsm` command: options, exit statuses, and the audit of what was run.

A composition root: it may import anything, nothing imports it. torch loads only where a model runs.
Exit statuses are in `rlt_fsm/command_output.py`.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, NoReturn

import typer
from msgspec.structs import replace

from rlt_fsm import oplog
from rlt_fsm.command_line import console_script, new_program
from rlt_fsm.command_output import Status, mistakes_in_one_sentence, print_text
from rlt_fsm.config import settings_of
from rlt_fsm.errors import RltError
from rlt_fsm.log import EventLog
from rlt_fsm.progress_line import ProgressLine
from rlt_fsm.states import FinishReason

from .bench_command import make_bench
from .console import AuditLine, FindingLine, Ran, as_json, as_text
from .model_command import model_app
from .run_command import run_file, run_texts
from .run_options import (
    Database,
    ExitThreshold,
    Json,
    LogFormat,
    LogLevel,
    MaxLoops,
    MaxTokens,
    MinLoops,
    Model,
    NoAudit,
    Prompts,
    Quiet,
    Seed,
    Settings,
    SlowStep,
    Temperature,
    TopK,
    TopP,
    WorkloadFile,
)
from .run_status import audit_progress
from .simulate import MAX_STEPS, Failure, check_file
from .simulate import simulate as run_seeds
from .simulate_console import json_of, line_of, simulation_as_text, trial_as_text, write_workload
from .terminal import log_as, log_to_stderr, seed_range

ABOUT = """Serve recurrent-loop language models; every transition is a logged event.

Example: rlt-fsm run --prompt "27+58="
"""
app = new_program("rlt-fsm", ABOUT)
main = console_script(app, "rlt-fsm")


@app.command()
def run(
    *,
    model: Model = None,
    prompt: Prompts = None,
    workload: WorkloadFile = None,
    db: Database = "run.db",
    settings: Settings = None,
    json: Json = False,
    no_audit: NoAudit = False,
    quiet: Quiet = False,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    seed: Seed = None,
    min_loops: MinLoops = None,
    max_loops: MaxLoops = None,
    exit_threshold: ExitThreshold = None,
    log_level: LogLevel = oplog.Level.WARNING,
    log_format: LogFormat = oplog.Format.CONSOLE,
    slow_step_ms: SlowStep = 5000,
) -> None:
    """Run prompts or a workload, log every event, and audit the log.

    Example: rlt-fsm run --prompt "27+58=" --exit-threshold 0.9 --db run.db
    """
    sampling = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "min_loops": min_loops,
        "max_loops": max_loops,
        "exit_threshold": exit_threshold,
    }
    given = {name: value for name, value in sampling.items() if value is not None}
    line = ProgressLine(is_wanted=not quiet)
    log_as(oplog.Settings(level=log_level, format=log_format, slow_step_ms=slow_step_ms), line)
    with mistakes_in_one_sentence("the log keeps what happened"), line:
        _refuse_memory(db)
        changes = settings_of(settings or [])
        if workload is not None:
            _refuse_beside_workload(prompt, given)
            ran = run_file(workload, model, changes, db=db, line=line)
        else:
            ran = run_texts(prompt, model, given, changes, db=db, line=line)
        ran, audit_line = _audited(ran, line, is_wanted=not no_audit)
    status = _status(ran, has_expectations=workload is not None)
    _end(status, as_json(ran) if json else None, as_text(ran, audit_line))


def _end(status: Status, json: str | None, text: str) -> NoReturn:
    """Print the answer for machines, if they asked, or for people; end with its status."""
    if json is not None:
        typer.echo(json)
    else:
        print_text(text, status)
    raise typer.Exit(status)


def _refuse_memory(db: str) -> None:
    if ":memory:" in db or db == "sqlite://":
        raise RltError(f"--db {db} keeps nothing that could be audited: give a file")


def _refuse_beside_workload(prompt: list[str] | None, sampling: Mapping[str, object]) -> None:
    beside = (["prompt"] if prompt else []) + list(sampling)
    if beside:
        option = "--" + beside[0].replace("_", "-")
        raise RltError(f"{option} does not go with --workload: the file says what runs")


# ---- audit and status --------------------------------------------------------------------------


def _audited(ran: Ran, line: ProgressLine, *, is_wanted: bool) -> tuple[Ran, str]:
    """The run with its audit, and the line that tells people of it."""
    if not is_wanted:
        return ran, "not audited"
    import audit  # noqa: PLC0415  # no auditor where none is wanted
    from audit.invariants import ALL  # noqa: PLC0415  # the same

    report = audit.verify(ran.db, run=ran.run_id, progress=audit_progress(line))
    findings = [
        FindingLine(
            invariant=finding.invariant,
            seq=finding.seq,
            step=finding.step,
            request_id=finding.request_id,
            message=finding.message,
            evidence=finding.evidence,
        )
        for finding in report.findings
    ]
    found = sum(sum(part.counts.values()) for part in report.runs)
    told = (
        f"audit {report.verdict}: {report.events:,} events, "
        f"{len(ALL) + 1} invariants, {found:,} findings"  # ALL is without S13, the log's own
    )
    for part in report.runs:
        told += "" if part.why is None else f" ({part.why})"
    return replace(ran, audit=AuditLine(verdict=report.verdict, findings=findings)), told


def _status(ran: Ran, *, has_expectations: bool) -> Status:
    verdict = None if ran.audit is None else ran.audit.verdict
    # A workload may want an error and says so in its expect; a prompt never does.
    has_failed = not has_expectations and any(
        output.finish_reason == FinishReason.ERROR for output in ran.outputs
    )
    if verdict == "findings" or ran.summary.expect_failures or has_failed:
        return Status.NO
    return Status.INCONCLUSIVE if verdict == "inconclusive" else Status.WELL


# ---- simulate ----------------------------------------------------------------------------------

Seeds = Annotated[
    str | None,
    typer.Option(metavar="A:B", help="Seeds A to B - 1.  [default: fresh ones, which are printed]"),
]
Steps = Annotated[
    int, typer.Option("--steps", metavar="N", min=1, help="Steps within which all must end.")
]
Seconds = Annotated[
    float | None,
    typer.Option(metavar="S", min=0, help="Begin no further workload after so long."),
]
Out = Annotated[str, typer.Option(metavar="DIR", help="Where a failing workload is written.")]
SimulatedFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Check this rlt-workload/1 file, and no seeds.")
]
FRESH_SEEDS, SEEDS_END = 200, 2**48


@app.command()
def simulate(
    *,
    seeds: Seeds = None,
    steps: Steps = MAX_STEPS,
    seconds: Seconds = None,
    json: Json = False,
    out: Out = ".",
    workload: SimulatedFile = None,
) -> None:
    """Run random workloads with faults on the sim and check everything that can be checked.

    A seed decides configuration, arrivals, aborts and faults. Every invariant must hold after every
    step, every request must get what it gets alone, nothing may be left. The first seed that fails
    is printed, and a small workload that fails alike is written to DIR. Exit status 1 if one fails.

    Example: rlt-fsm simulate --seeds 0:1000
    """
    log_to_stderr("critical")  # devices fail here on purpose
    with mistakes_in_one_sentence(), ProgressLine() as shown:
        if workload is not None:
            if seeds is not None:
                raise RltError("--seeds does not go with --workload: the file says what runs")
            trial = check_file(workload, _judge)
            typer.echo(json_of(trial) if json else trial_as_text(workload, trial))
            raise typer.Exit(Status.NO if trial.failures else Status.WELL)
        chosen = _fresh_seeds(seconds) if seeds is None else seed_range(seeds, SEEDS_END)
        result = run_seeds(chosen, _judge, max_steps=steps, seconds=seconds, tell=shown.show)
        shown.clear()
        path = None if result.failed is None else write_workload(result.failed, out)
    line = line_of(result, path)
    status = Status.WELL if result.failed is None else Status.NO
    _end(status, json_of(line) if json else None, simulation_as_text(line))


def _fresh_seeds(seconds: float | None) -> range:
    """A range nobody chose; it is told at once, so that a run that is killed can be repeated."""
    first = secrets.randbelow(SEEDS_END // 2)
    seeds = range(first, SEEDS_END if seconds is not None else first + FRESH_SEEDS)
    typer.echo(f"fresh seeds from {first}", err=True)
    return seeds


def _judge(log: EventLog) -> list[Failure]:
    """The auditor's findings; a log of which it cannot tell is one."""
    import audit  # noqa: PLC0415  # no auditor where none is wanted

    report = audit.verify(log)
    failures = [
        Failure(kind=f.invariant, message=f.message, seq=f.seq, step=f.step)
        for f in report.findings
    ]
    whys = [part.why for part in report.runs if part.verdict == "inconclusive"]
    return failures + [Failure(kind="inconclusive", message=why or "no run") for why in whys]


app.command()(make_bench(_judge))
app.add_typer(model_app)
if __name__ == "__main__":
    main()
