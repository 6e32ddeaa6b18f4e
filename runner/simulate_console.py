"""What `rlt-fsm simulate` shows and writes: text for people, JSON for machines, a workload file.

Functions of finished values; nothing here runs anything.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rlt_fsm.errors import WorkloadError
from rlt_fsm.wording import counted
from rlt_fsm.workload import Workload, to_json

from .simulate import Failed, Failure, Simulated, Trial

_FAILURES_SHOWN = 10


class FailedLine(msgspec.Struct, frozen=True, kw_only=True):
    """The seed that failed, what broke in its small workload, and where that was written."""

    seed: int
    failures: Sequence[Failure]
    requests_before: int
    requests: int
    workload: str


class SimulatedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation: the object that `--json` prints. `seeds` were put on trial, half-open."""

    seeds: str
    workloads: int
    steps: int
    longest: int
    events: int
    preemptions: int
    seconds: float
    triggers: dict[str, int]
    failed: FailedLine | None


def write_workload(failed: Failed, folder: str) -> str:
    """Write the small workload as a file that `rlt-fsm run` takes; its path.

    Raises:
        WorkloadError: it cannot be written.
    """
    first = failed.failures[0]
    named = replace(
        failed.small,
        name=f"simulate-{failed.seed}",
        about=f"seed {failed.seed}: {first.kind}: {first.message}",
    )
    path = Path(folder) / f"simulate-{failed.seed}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_pretty(named))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from error
    return str(path)


def _pretty(workload: Workload) -> bytes:
    return msgspec.json.format(to_json(workload).encode(), indent=1) + b"\n"


def line_of(simulated: Simulated, path: str | None) -> SimulatedLine:
    """A simulation as it is printed; `path` is where the failed workload was written."""
    failed = simulated.failed
    line = None
    if failed is not None:
        assert path is not None, "what failed was written down"
        line = FailedLine(
            seed=failed.seed,
            failures=failed.failures,
            requests_before=len(failed.original.requests),
            requests=len(failed.small.requests),
            workload=path,
        )
    return SimulatedLine(
        seeds=f"{simulated.first}:{simulated.end}",
        workloads=simulated.end - simulated.first,
        steps=simulated.steps,
        longest=simulated.longest,
        events=simulated.events,
        preemptions=simulated.preemptions,
        seconds=simulated.seconds,
        triggers=simulated.triggers,
        failed=line,
    )


def json_of(printed: SimulatedLine | Trial) -> str:
    """What came of it as one JSON object."""
    return msgspec.json.encode(printed).decode()


def simulation_as_text(line: SimulatedLine) -> str:
    """What was run, and what failed."""
    steps = f"{counted(line.steps, 'step')} (the longest run {line.longest:,})"
    parts = [counted(line.workloads, "workload"), steps, *_sizes(line), f"{line.seconds:.1f} s"]
    numbers = f"seeds {line.seeds}: {', '.join(parts)}"
    failed = line.failed
    if failed is None:
        return f"{numbers}\nevery invariant held in every one"
    enough = f"{failed.requests} of its {counted(failed.requests_before, 'request')} will do"
    return "\n".join(
        [
            numbers,
            f"seed {failed.seed} fails; {enough}:",
            *_failures(failed.failures),
            f"the small workload: {failed.workload}",
            f"once more: rlt-fsm simulate --workload {failed.workload}",
            f"its origin: rlt-fsm simulate --seeds {failed.seed}:{failed.seed + 1}",
        ]
    )


def trial_as_text(path: str, trial: Trial) -> str:
    """What came of one workload file."""
    numbers = ", ".join([counted(trial.steps, "step"), *_sizes(trial)])
    return "\n".join(
        [f"{path}: {numbers}", *(_failures(trial.failures) or ["every invariant held"])]
    )


def _sizes(what: SimulatedLine | Trial) -> list[str]:
    return [counted(what.events, "event"), counted(what.preemptions, "preemption")]


def _failures(failures: Sequence[Failure]) -> list[str]:
    lines = []
    for failure in failures[:_FAILURES_SHOWN]:
        place = "" if failure.seq is None else f" seq {failure.seq}"
        place += "" if failure.step is None else f" step {failure.step}"
        lines.append(f"  {failure.kind}{place}: {failure.message}")
    if (hidden := len(failures) - _FAILURES_SHOWN) > 0:
        lines.append(f"  … and {hidden} more")
    return lines
