"""Recovery: how a run that broke off goes on. Reads its log, records what the crash cost.

What was in memory is lost: KV, snapshots, prefix pages, batches in flight. What was committed is
not. Nobody is scheduled here: the next step finds everybody waiting.
"""

from os import PathLike
from typing import NamedTuple

import msgspec

from . import config as configs
from .arguments import path_text, whole
from .batch import ModelFacts, Runner
from .blocks import plane_major
from .config import EngineConfig
from .errors import ConfigError, LogError, LogUnavailable
from .events import BatchFailed, BatchRetired, Finished, Retired, Rewound, RunOpened, RunRecovered
from .exits import finish_reason
from .log import EventLog
from .log.port import EventRow, LogWriter, RunInfo
from .log.presence import holds_something
from .machines import NONE, SUBMITTED
from .recorder import Recorder, Tail
from .replay import fold, our_moves
from .state import EngineState, Request
from .states import FinishReason

RECOVERED = "recovered"  # why a request is rewound
CRASHED = "crashed"  # why a batch failed

_Fields = frozenset[str]
_MAY_DIFFER: _Fields = frozenset({"model.name"})  # it may be a path
# What decides no result but only how fast it comes: a runner that says why may do without.
_SPEED_ALONE: _Fields = frozenset({"config.execution.cuda_graphs"})


class Crashed(NamedTuple):
    """A run at its last commit, and what goes on writing it; `tail` None: nothing was stored."""

    log: EventLog
    state: EngineState
    writer: LogWriter
    tail: Tail | None
    owns_log: bool  # it was opened here
    fallback: str | None  # why the runner does something otherwise than the config has it


class _Broken(NamedTuple):
    """A run without its end, as its header tells of it."""

    info: RunInfo
    config: EngineConfig
    model: ModelFacts


def take_up(db: EventLog | str | PathLike[str], runner: Runner, run: int | None) -> Crashed:
    """Find the run (None: the newest that has not ended), and start the runner for it.

    A log that is opened here is closed if anything fails; so is the runner.

    Raises:
        LogError: the log cannot be opened or read, or no such run broke off.
        ConfigError: the runner is not that of the run.
        IllegalTransition: the log tells of something that cannot have happened.
    """
    run = None if run is None else whole("run", run, least=1)
    log = db if isinstance(db, EventLog) else _existing(db)
    try:
        broken = _broken_run(log, run)
        model, config = runner.start(broken.config)
        _require_the_same(broken, model, config, runner.fallback)
        number = broken.info.run_id
        writer = log.continue_run(number)  # it waits for a commit that is still under way
        if not broken.info.last_seq:
            state, tail = EngineState(broken.config, broken.model), None
        else:
            state = fold(log, number)
            tail = _tail_of(log, number, state)
        return Crashed(log, state, writer, tail, log is not db, runner.fallback)
    except BaseException:
        runner.close()
        if log is not db:
            log.close()
        raise


def _existing(db: str | PathLike[str]) -> EventLog:
    """A log to write to that is there already."""
    path = path_text("db", db)
    if not holds_something(path):  # to open one that is not there would make it
        raise LogUnavailable(f"{path}: there is no log, or an empty one: nothing to recover")
    return EventLog.open(path)


def _broken_run(log: EventLog, run: int | None) -> _Broken:
    """The run to go on with; None: the newest of those that have not ended.

    Raises:
        LogError: there is none, or it has ended.
    """
    runs = {info.run_id: info for info in log.reader().runs()}
    if run is not None and run not in runs:
        known = ", ".join(map(str, runs)) or "none"
        raise LogError(f"{log.name}: there is no run {run}; runs: {known}")
    unended = [number for number, info in runs.items() if info.ended_at is None]
    number = run if run is not None else max(unended, default=None)
    if number is None:
        raise LogError(f"{log.name}: no run of it broke off: there is nothing to recover")
    info = runs[number]
    if info.ended_at is not None:
        raise LogError(f"{log.name}: run {number} has ended ({info.outcome}): nothing to recover")
    try:
        model = msgspec.json.decode(info.model, type=ModelFacts)
        return _Broken(info, configs.from_mapping(msgspec.json.decode(info.config)), model)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise LogError(
            f"{log.name}: run {number} has a header of another version: {error}"
        ) from error


def _require_the_same(
    broken: _Broken, model: ModelFacts, config: EngineConfig, fallback: str | None
) -> None:
    """Refuse a runner that could not have computed the run, or is slower and does not say why.

    Raises:
        ConfigError: the first field in which the runner differs.
    """
    passed_over = _MAY_DIFFER if fallback is None else _MAY_DIFFER | _SPEED_ALONE
    pairs = (("model", broken.model, model), ("config", broken.config, config))
    for part, recorded, now in pairs:
        place = _first_difference(
            msgspec.to_builtins(recorded), msgspec.to_builtins(now), part, passed_over
        )
        if place is not None:
            raise ConfigError(
                f"{place[0]}={place[2]!r} of this runner, {place[1]!r} of run "
                f"{broken.info.run_id}: recover it with the runner and model that it had"
            )


def _first_difference(
    recorded: object, now: object, place: str, passed_over: _Fields
) -> tuple[str, object, object] | None:
    if isinstance(recorded, dict) and isinstance(now, dict):
        inner = (
            _first_difference(value, now.get(key), f"{place}.{key}", passed_over)
            for key, value in recorded.items()
            if f"{place}.{key}" not in passed_over
        )
        return next((found for found in inner if found is not None), None)
    return None if recorded == now else (place, recorded, now)


# ---- where the log stops -------------------------------------------------------------------------


def _tail_of(log: EventLog, run_id: int, state: EngineState) -> Tail:
    """What the recorder must know to go on after the last event of a run that has some."""
    reader = log.reader()
    cells = reader.first_after(run_id, state.seq - 1)
    assert cells is not None, f"seq {state.seq} was folded"
    last = EventRow(*cells)
    sealed = reader.step_at(run_id, last.step)
    numbers = our_moves(reader, run_id)
    rows = []
    for row in reader.events(run_id, sealed.last_seq if sealed is not None else 0):
        move = numbers[row[5]]
        assert move is not None, f"seq {row[0]} was folded"
        rows.append((*row[:5], move, *row[6:]))
    if sealed is not None:
        digest = sealed.digest
    else:
        checkpoint = reader.checkpoint(run_id)
        digest = bytes(32) if checkpoint is None else checkpoint.digest
    named = {row[4] for row in rows} | state.by_ref.keys()
    return Tail(
        step=last.step,
        digest=digest,
        rows=rows,
        names={row[0]: f"{row[1]}#{row[2]}" for row in reader.requests(run_id) if row[0] in named},
        t_ns=last.t_ns,
    )


# ---- what the crash cost -------------------------------------------------------------------------


def record(crashed: Crashed, recorder: Recorder) -> None:
    """Record, as one commit, what the crash cost; or the run's beginning, where it had none yet."""
    state = crashed.state
    if crashed.tail is None:
        recorder.record(RunOpened(state.config, state.model, crashed.fallback))
    else:
        recorder.take_up(crashed.tail)
        _record_losses(state, recorder, crashed.fallback)
    recorder.commit()


def _record_losses(state: EngineState, recorder: Recorder, fallback: str | None) -> None:
    """A step of its own: who lost what, which batches never come, who had ended anyway."""
    pages = list(state.prefixes.oldest_first())
    recovered = recorder.record(RunRecovered(plane_major(pages, state.planes), fallback))
    ending = _ending(state)
    for request in list(state.by_ref.values()):
        is_live = request.finish_reason is None and request not in ending
        if is_live and request.kv != NONE:
            fact = Rewound(request.ref, RECOVERED, None, request.block_ids)
            recorder.record(fact, cause=recovered)
    for ticket, entry in state.tickets.items():
        if entry.state == SUBMITTED:
            recorder.record(BatchFailed(CRASHED), ticket=ticket, cause=entry.submitted_seq)
    for request, reason in ending.items():
        ticket = next(t for t, entry in state.tickets.items() if request.ref in entry.refs)
        settled = state.tickets[ticket].settled_seq
        recorder.record(Finished(request.ref, reason), ticket=ticket, cause=settled)
    for ticket, entry in list(state.tickets.items()):
        recorder.record(BatchRetired(), ticket=ticket, cause=entry.settled_seq)
    for request in [r for r in state.by_ref.values() if r.finish_reason is not None]:
        recorder.record(Retired(request.ref, request.block_ids), cause=request.ended_seq)
    recorder.end_step(None)


def _ending(state: EngineState) -> dict[Request, FinishReason]:
    """Live requests whose last output ends them, which was not recorded any more."""
    ending = {}
    for request in state.by_ref.values():
        if request.finish_reason is None and request.outputs:
            outputs, token = len(request.outputs), request.outputs[-1]
            reason = finish_reason(state.model, request.spec, outputs, token)
            if reason is not None:
                ending[request] = reason
    return ending
