"""The work of `rlt-fsm run`: build a runner, an engine and a log, run, and gather what came out.

Options and exit statuses are in `cli.py`, printing in `console.py`. The audit happens elsewhere:
whoever runs an engine does not judge it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rlt_fsm.batch import Runner
from rlt_fsm.config import EngineConfig, override, validate
from rlt_fsm.drive import DriveResult, Faults, check, drive, require_drivable
from rlt_fsm.engine import Engine
from rlt_fsm.errors import RltError, WorkloadError
from rlt_fsm.log import EventLog
from rlt_fsm.outputs import RequestOutput
from rlt_fsm.params import SamplingParams
from rlt_fsm.progress_line import ProgressLine
from rlt_fsm.states import FinishReason
from rlt_fsm.workload import FORMAT, Request, Workload, load, to_json

from .console import OutputLine, Ran, Refusal, Summary
from .progress import bar, silent
from .run_status import RunStatus
from .sim import SimRunner

SIM = "sim"
DEMO_PROMPTS = ("27+58=", "403+219=", "90-17=", "8+5=", "512-206=", "777+88=")
Decode = Callable[[Sequence[int]], str]


class _Backend(NamedTuple):
    """A runner for a workload, who injects its faults, and how its tokens read."""

    runner: Runner
    faults: Faults | None
    workload: Workload  # with the model's own vocabulary, depths and context
    decode: Decode | None


def run_file(
    path: str, model: str | None, changes: Mapping[str, str], *, db: str, line: ProgressLine
) -> Ran:
    """Run a workload file, on another model or with changes of its config where some are given.

    Raises:
        RltError: the file, its model, its config or the log cannot be used.
    """
    loaded = load(path)
    config = override(loaded.config, changes)
    loaded = replace(loaded, config=config, model=model or loaded.model)
    return run_workload(loaded, db=db, line=line)


def run_texts(
    texts: Sequence[str] | None,
    model: str | None,
    sampling: Mapping[str, object],
    changes: Mapping[str, str],
    *,
    db: str,
    line: ProgressLine,
) -> Ran:
    """Complete texts (a few sums, if None) with a model (the demo's) under what options ask for.

    Raises:
        RltError: a prompt, an option, the model or the log cannot be used.
    """
    params = replace(SamplingParams(), **sampling)
    config = override(EngineConfig(), changes)
    prompts = texts or DEMO_PROMPTS
    return run_prompts(model or "demo", prompts, params, config, db=db, line=line)


def run_workload(workload: Workload, *, db: str, line: ProgressLine) -> Ran:
    """Run a workload on the model that it names and compare with its `expect`; `line` tells how
    far it is.

    Raises:
        RltError: the workload, its model, its config or the log cannot be used.
    """
    validate(workload.config)
    backend = _sim(workload) if workload.model == SIM else _torch(workload, line)
    workload = backend.workload
    require_drivable(workload, can_fail=backend.faults is not None)
    with (
        EventLog.open(db) as log,
        Engine(backend.runner, workload.config, log, workload=to_json(workload)) as engine,
    ):
        on_step = RunStatus(line, engine, len(workload.requests))
        started = time.monotonic()
        result = drive(engine, workload, runner_faults=backend.faults, on_step=on_step)
        seconds = time.monotonic() - started
        batches, run_id = engine.state.next_ticket, engine.run_id
    outputs = _driven_outputs(result, backend.decode)
    summary = _summary(outputs, steps=result.steps, batches=batches, seconds=seconds)
    summary = replace(
        summary,
        requests=len(result.requests),
        preemptions=result.preemptions,
        refused=_refusals(result),
        expect_failures=check(workload.expect, result),
    )
    return Ran(outputs=outputs, summary=summary, audit=None, db=db, run_id=run_id)


def run_prompts(
    model: str,
    prompts: Sequence[str],
    params: SamplingParams,
    config: EngineConfig,
    *,
    db: str,
    line: ProgressLine,
) -> Ran:
    """Complete texts with a model; the sim reads their UTF-8 bytes as tokens. `line` tells how far
    it is.

    Raises:
        RltError: a prompt, its parameters, the model, the config or the log cannot be used.
    """
    validate(config)
    if model == SIM:
        return _simulated_prompts(prompts, params, config, db=db, line=line)
    from .llm import LLM  # noqa: PLC0415  # torch loads only where a model is used

    with LLM(model, db=db, config=config, show_progress=line.is_watched) as llm:
        on_step = RunStatus(line, llm.engine, len(prompts))
        started = time.monotonic()
        last: dict[str, RequestOutput] = {}
        ended = 0
        for output in llm.stream(prompts, params):
            last[output.request_id] = output
            ended += output.finished
            on_step(llm.engine.current_step, ended)
        seconds = time.monotonic() - started
        steps, batches = llm.engine.current_step, llm.engine.state.next_ticket
        run_id = llm.engine.run_id
    in_order = sorted(last.values(), key=lambda output: int(output.request_id))
    outputs = [
        OutputLine(
            request_id=output.request_id,
            prompt=prompt,
            text=output.text,
            token_ids=output.token_ids,
            exit_depths=output.exit_depths,
            finish_reason=output.finish_reason,
        )
        for prompt, output in zip(prompts, in_order, strict=True)
    ]
    summary = _summary(outputs, steps=steps, batches=batches, seconds=seconds)
    return Ran(outputs=outputs, summary=summary, audit=None, db=db, run_id=run_id)


# ---- models ------------------------------------------------------------------------------------


def _sim(workload: Workload) -> _Backend:
    runner = SimRunner.of(workload)
    return _Backend(runner, runner, workload, None)


def _torch(workload: Workload, line: ProgressLine) -> _Backend:
    """A real model samples its own tokens: nothing can be scripted, and its size is its own."""
    if any(request.eos_at or request.stop_at for request in workload.requests):
        raise WorkloadError("'eos_at' and 'stop_at' script the sim: use model sim")
    from .loading import load_model  # noqa: PLC0415  # torch loads only where a model is used
    from .text import load_tokenizer  # noqa: PLC0415  # the same
    from .torch_runner import TorchRunner  # noqa: PLC0415  # the same

    reading = bar("read", "megabyte") if line.is_watched else silent
    loaded = load_model(workload.model, "auto", "auto", reading)
    tokenizer = None if loaded.folder is None else load_tokenizer(loaded.folder)
    fitted = replace(
        workload,
        vocab_size=loaded.config.shape.vocab_size,
        max_model_len=loaded.config.shape.context,
    )
    decode = None if tokenizer is None else tokenizer.decode
    progress = bar("captured", "graph") if line.is_watched else silent
    return _Backend(TorchRunner(loaded, progress=progress), None, fitted, decode)


def _simulated_prompts(
    prompts: Sequence[str],
    params: SamplingParams,
    config: EngineConfig,
    *,
    db: str,
    line: ProgressLine,
) -> Ran:
    """Byte b is token b + 1: 0 is the sim's EOS."""
    requests = tuple(
        Request(id=str(i), prompt=tuple(b + 1 for b in prompt.encode()), params=params)
        for i, prompt in enumerate(prompts)
    )
    workload = Workload(format=FORMAT, config=config, requests=requests)
    ran = run_workload(workload, db=db, line=line)
    for refusal in ran.summary.refused:
        raise RltError(f"request {refusal.request_id!r} refused: {refusal.message}")
    outputs = [replace(output, prompt=prompts[int(output.request_id)]) for output in ran.outputs]
    return replace(ran, outputs=outputs)


# ---- what came out -----------------------------------------------------------------------------


def _driven_outputs(result: DriveResult, decode: Decode | None) -> list[OutputLine]:
    outputs = []
    for request in result.requests:
        if request.refused is not None:
            continue
        prompt: str | tuple[int, ...] = request.prompt_token_ids
        text = None
        if decode is not None:
            prompt = decode(request.prompt_token_ids)
            # A stop token is no part of the text.
            is_stopped = request.finish_reason == FinishReason.STOP
            text = decode(request.token_ids[:-1] if is_stopped else request.token_ids)
        outputs.append(
            OutputLine(
                request_id=request.label,
                prompt=prompt,
                text=text,
                token_ids=request.token_ids,
                exit_depths=request.exit_depths,
                finish_reason=request.finish_reason,
            )
        )
    return outputs


def _refusals(result: DriveResult) -> list[Refusal]:
    return [
        Refusal(request_id=r.label, reason=r.refused, message=r.message or r.refused)
        for r in result.requests
        if r.refused is not None
    ]


def _summary(outputs: Iterable[OutputLine], *, steps: int, batches: int, seconds: float) -> Summary:
    outputs = list(outputs)
    depths = [depth for output in outputs for depth in output.exit_depths]
    return Summary(
        requests=len(outputs),
        tokens=sum(len(output.token_ids) for output in outputs),
        steps=steps,
        batches=batches,
        preemptions=0,
        mean_exit_depth=sum(depths) / len(depths) if depths else None,
        seconds=seconds,
        refused=(),
        expect_failures=(),
    )
