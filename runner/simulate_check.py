"""One workload put on trial: run it on SimRunner and look for anything that must not be.

In this order: an engine stops with an error; an invariant of the auditor breaks; requests are still
live after `max_steps` steps; something is held when nothing is left to do; the fold of the log is
not the engine's state; a request got other outputs than it gets alone.

The auditor reads the log once, at the end. It checks event by event and forgets nothing, so what it
says is what it would have said after every step. Who it is, is the caller's business: running and
judging share no code.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rlt_fsm.config import EngineConfig, ExecutionConfig, ExitConfig, SchedulerConfig
from rlt_fsm.drive import DriveResult, drive, require_drivable
from rlt_fsm.engine import Engine
from rlt_fsm.log import EventLog
from rlt_fsm.moves import MOVES
from rlt_fsm.prompts import prompts
from rlt_fsm.replay import fold
from rlt_fsm.state import EngineState
from rlt_fsm.states import FinishReason
from rlt_fsm.workload import Expect, Workload, in_order, to_json

from .sim import SimRunner

_TRIGGERS = tuple(move.trigger.partition(":")[0] for move in MOVES)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong: an invariant's id, or `stopped-…`, `stall`, `drain`, `fold`, `outputs`.

    `seq` and `step` are the place in the log, where there is one.
    """

    kind: str
    message: str
    seq: int | None = None
    step: int | None = None


# All that an auditor holds against a log, the first breach first.
Judge = Callable[[EventLog], Sequence[Failure]]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one workload; `failures` is empty where all is well, else its first is named."""

    failures: Sequence[Failure]
    steps: int
    events: int
    preemptions: int
    triggers: dict[str, int]  # events by trigger


class _Stopped(Exception):  # noqa: N818  # it is caught here, and ends nothing
    """The engine raised while it was driven."""

    def __init__(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        module = Path(place.filename).stem
        self.failure = Failure(
            kind=f"stopped-{type(error).__name__}-{module}.{place.name}",
            message=f"the engine stopped: {error!r} ({module}.py:{place.lineno})",
        )


def put_on_trial(workload: Workload, judge: Judge) -> Trial:
    """Run a workload and gather what is wrong with it.

    Raises:
        RltError: the workload or its configuration cannot be used; nothing was run.
    """
    runner = SimRunner.of(workload)
    with EventLog.memory() as log:
        engine = Engine(runner, workload.config, log, workload=to_json(workload))
        result: DriveResult | None = None
        try:
            result = _driven(engine, workload, runner)
            left, folded = _drain(engine.state, runner, result), _closed(engine)
            alone = _alone(workload)
        except _Stopped as stopped:
            failures = [stopped.failure]
        else:
            failures = [*judge(log), *_stall(result), *left, *folded]
            failures += _outputs(workload, result, alone)
        counts = Counter(_TRIGGERS[event[5]] for event in log.reader().events(engine.run_id))
    return Trial(
        failures=failures,
        steps=engine.current_step if result is None else result.steps,
        events=engine.state.seq,
        preemptions=0 if result is None else result.preemptions,
        triggers=dict(counts),
    )


def run_logged(workload: Workload, log: EventLog, *, check: bool) -> Failure | None:
    """Run a workload to its end and close it; how the engine stopped, if it did.

    `check`: let the sim refuse KV that nobody wrote, instead of leaving that to the auditor.

    Raises:
        RltError: the workload or its configuration cannot be used; nothing was run.
    """
    require_drivable(workload, can_fail=True)
    runner = SimRunner.of(workload, check=check)
    engine = Engine(runner, workload.config, log, workload=to_json(workload))
    try:
        _driven(engine, workload, runner)
        engine.close()
    except _Stopped as stopped:
        return stopped.failure
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what was asked for
        return _Stopped(error).failure
    return None


def _driven(engine: Engine, workload: Workload, runner: SimRunner) -> DriveResult:
    try:
        return drive(engine, workload, runner_faults=runner)
    except Exception as error:
        raise _Stopped(error) from error


def _closed(engine: Engine) -> list[Failure]:
    """Close the engine; the fold of its log must be its state."""
    try:
        engine.close()
        folded = fold(engine.log, engine.run_id).as_dict()
    except Exception as error:
        raise _Stopped(error) from error
    live = engine.state.as_dict()
    parts = ", ".join(name for name in live if live[name] != folded[name])
    return [Failure(kind="fold", message=f"the log folds to another {parts}")] if parts else []


def _stall(result: DriveResult) -> list[Failure]:
    if not result.cut_off:
        return []
    live = sum(1 for r in result.requests if r.refused is None and r.finish_reason is None)
    message = f"{live} requests are still live after {result.steps} steps"
    return [Failure(kind="stall", message=message, step=result.steps)]


def _drain(state: EngineState, runner: SimRunner, result: DriveResult) -> list[Failure]:
    """With nothing left to do nothing may be held, by the engine or by its runner."""
    if result.cut_off:
        return []
    left = {
        "live requests": len(state.by_ref),
        "waiting": len(state.waiting),
        "queued": sum(map(len, state.queues.values())),
        "slots": state.slots_held,
        "blocks": state.pool.num_blocks - state.pool.obtainable,
        "host blocks": state.host_blocks,
        "tickets": len(state.tickets),
        "requests in the runner": runner.requests_held,
    }
    tell = ", ".join(f"{count} {what}" for what, count in left.items() if count)
    return [Failure(kind="drain", message=f"drained with {tell} left")] if tell else []


# ---- outputs -----------------------------------------------------------------------------------

_UNTIMELY = {None, FinishReason.ABORT, FinishReason.ERROR}


def _outputs(workload: Workload, result: DriveResult, alone: DriveResult) -> list[Failure]:
    """Company must not show: tokens, depths and end are those that the request has alone."""
    failures = []
    places = [index for index, _ in in_order(workload)]
    for index, request in zip(places, result.requests, strict=False):  # it may be cut off
        if request.refused is not None:
            continue
        single = alone.requests[index]
        got = list(zip(request.token_ids, request.exit_depths, strict=True))
        due = list(zip(single.token_ids, single.exit_depths, strict=True))
        if request.finish_reason in _UNTIMELY:
            due = due[: len(got)]
        if got != due:
            message = f"{request.label} got {got} (token, exit depth), alone it gets {due}"
            failures.append(Failure(kind="outputs", message=message))
        elif request.finish_reason not in {*_UNTIMELY, single.finish_reason}:
            message = f"{request.label} ends with {request.finish_reason}, alone with "
            failures.append(Failure(kind="outputs", message=message + str(single.finish_reason)))
    return failures


def _alone(workload: Workload) -> DriveResult:
    """The requests, in file order, each run by itself, synchronously: one seat, room for all, no
    aborts. Exits are as late as in company.
    """
    requests = tuple(
        replace(
            request,
            id=str(index),
            at=0,
            prompt=prompt,
            prompt_len=None,
            prompt_like=None,
            shared_len=None,
        )
        for index, (request, prompt) in enumerate(
            zip(workload.requests, prompts(workload), strict=True)
        )
    )
    mode = workload.config.exit.mode
    if mode is None and workload.config.execution.async_scheduling:
        mode = "ouro_delayed"
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=1),
        execution=ExecutionConfig(durability="off"),
        exit=ExitConfig(mode=mode),
    )
    single = replace(
        workload, requests=requests, actions=(), config=config, completion=None, expect=Expect()
    )
    runner = SimRunner.of(single)
    with EventLog.memory() as log, Engine(runner, config, log, verdicts=False) as engine:
        return _driven(engine, single, runner)
