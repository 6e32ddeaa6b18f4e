"""The arms of a benchmark, interleaved: which runs there are, and what each came to."""

import platform
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import torch
from msgspec.structs import replace

from rlt_fsm.config import Mode
from rlt_fsm.errors import ConfigError
from rlt_fsm.progress_line import Pace
from rlt_fsm.version import engine_version, revision
from runner.loading import LoadedModel, resolve_device
from runner.on_device import chosen

from .dense import run_dense
from .jobs import LAWS, OURO_1_4B, SHAPES, TINY, make_jobs, random_model
from .plan import Plan
from .roofline import Roofline, copy_bandwidth, roofline_of
from .serving import Judge, Served, arm_config, serve
from .steps import time_steps


class _Arm(NamedTuple):
    """How an arm serves: the law of its depths, the scheduler's mode, and what is kept.

    `in_step`: codas wait until every row has one.
    """

    law: str
    mode: Mode = "refill"
    is_async: bool = True
    has_log: bool = True
    in_step: bool = False


ENGINE_ARMS: Final = {
    "full": _Arm("full"),
    "adaptive": _Arm("paper"),
    "full-sync": _Arm("full", is_async=False),
    "adaptive-sync": _Arm("paper", is_async=False),
    "full-in-step": _Arm("full", in_step=True),
    "full-in-step-sync": _Arm("full", is_async=False, in_step=True),
    "full-log-off": _Arm("full", has_log=False),
    "no-refill": _Arm("paper", mode="no_refill"),
    "log-off": _Arm("paper", has_log=False),
}
DENSE_ARMS: Final = {"eager": False, "graphed": True}
ARMS: Final = (*DENSE_ARMS, *ENGINE_ARMS)
STEP_GRID: Final = (
    (1, 512), (8, 512), (16, 512), (32, 512), (64, 512), (128, 512), (256, 512), (32, 1024),
    (128, 1024),
)  # fmt: skip
Tell = Callable[[str], None]
MODELS: Final = {"ouro-1.4b": OURO_1_4B, "tiny": TINY}


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """One captured decode step, in milliseconds; `ratio` is loop over floor."""

    rows: int
    length: int
    batch_invariant: bool
    loop_ms: float
    floor_ms: float
    ratio: float
    coda_ms: float


class ArmLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one arm. Steady figures are None for the dense arms, which have no queue.

    `tokens` are those that were asked for; a dense cohort computes more of them.
    """

    shape: str
    width: int
    arm: str
    repeat: int
    seconds: float
    tokens: int
    tokens_per_second: float
    decode_tokens_per_second: float
    roofline: float | None = None
    of_roofline: float | None = None
    mean_depth: float | None = None
    mean_context: float | None = None
    prompt_seconds: float | None = None
    idle_share: float | None = None
    log_seconds: float | None = None
    steps: int | None = None
    problems: tuple[str, ...] = ()


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call measured: what `--json` prints."""

    card: str
    torch: str
    python: str
    engine_version: str
    revision: str | None
    model: str
    copy_tb_per_s: float | None
    steps: list[StepLine]
    arms: list[ArmLine]


Keep = Callable[[BenchResult], None]


def check(plan: Plan) -> None:
    """Refuse a plan that names what there is not.

    Raises:
        ConfigError: an arm, a shape or a folder of no such name, or a number below 1.
    """
    for option, given, known in (
        ("arm", plan.arms, ARMS),
        ("shape", plan.shapes, tuple(SHAPES)),
        ("model", (plan.model,), tuple(MODELS)),
    ):
        for name in given:
            if name not in known:
                raise ConfigError(f"--{option} {name}: must be one of {', '.join(known)}")
    if min((plan.repeats, plan.requests, plan.in_flight, *plan.widths)) < 1:
        raise ConfigError("--width, --repeats, --requests and --in-flight must be at least 1")
    if plan.log_in is not None:
        _check_log_in(plan.log_in)


def _check_log_in(folder: str) -> None:
    if not Path(folder).is_dir():
        raise ConfigError(f"--log-in {folder}: there is no such folder")
    try:
        tempfile.TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        raise ConfigError(
            f"--log-in {folder}: no log can be written there ({error.strerror}): name another"
        ) from error


def run_plan(plan: Plan, judge: Judge, tell: Tell, keep: Keep) -> BenchResult:
    """Measure everything of a plan; arms take turns within each repeat. `keep` gets the result so
    far after each run: a benchmark that is cut off has not run for nothing.

    Raises:
        ConfigError: see `check`; or no such device.
    """
    check(plan)
    device = resolve_device(plan.device)
    if device.type != "cuda" and "graphed" in plan.arms:
        raise ConfigError("--arm graphed needs a CUDA device: name other arms")
    with chosen(device):  # graphs and events are those of the thread's current device
        return _measured(plan, device, judge, tell, keep)


def _measured(
    plan: Plan, device: torch.device, judge: Judge, tell: Tell, keep: Keep
) -> BenchResult:
    is_cuda = device.type == "cuda"
    loaded = random_model(MODELS[plan.model], plan.model, device)
    bandwidth = copy_bandwidth(device) if is_cuda else None
    roofline = None
    if bandwidth is not None:
        roofline = roofline_of(loaded.as_ouro().config, loaded.dtype, bandwidth)
    result = BenchResult(
        card=torch.cuda.get_device_name(device) if is_cuda else platform.machine(),
        torch=str(torch.__version__),
        python=platform.python_version(),
        engine_version=engine_version(),
        revision=revision(),
        model=plan.model,
        copy_tb_per_s=None if bandwidth is None else bandwidth / 1e12,
        steps=[],
        arms=[],
    )
    if plan.steps and roofline is not None:
        result.steps.extend(_steps(loaded, roofline, tell))
        keep(result)
    runs = list(product(range(plan.repeats), plan.shapes, plan.widths, plan.arms))
    pace = Pace()
    began = time.monotonic()
    for done, (repeat, shape, width, arm) in enumerate(runs):
        if plan.seconds is not None and time.monotonic() - began >= plan.seconds:
            break
        pace.note(done, len(runs))
        place = f"run {done + 1} of {len(runs)}: repeat {repeat + 1}, {shape}, width {width}"
        tell(f"{place}, {arm}{pace.text()}")
        result.arms.append(_arm(plan, loaded, shape, width, arm, repeat, roofline, judge))
        keep(result)
    return result


def _steps(loaded: LoadedModel, roofline: Roofline, tell: Tell) -> list[StepLine]:
    lines = []
    for rows, length in STEP_GRID:
        for invariant in (False, True):
            tell(f"step of {rows} rows, {length} tokens")
            times = time_steps(loaded, rows, length, roofline, batch_invariant=invariant)
            lines.append(
                StepLine(
                    rows=rows,
                    length=length,
                    batch_invariant=invariant,
                    loop_ms=1e3 * times.loop,
                    floor_ms=1e3 * times.floor,
                    ratio=times.loop / times.floor,
                    coda_ms=1e3 * times.coda,
                )
            )
    return lines


def _arm(
    plan: Plan,
    loaded: LoadedModel,
    shape: str,
    width: int,
    arm: str,
    repeat: int,
    roofline: Roofline | None,
    judge: Judge,
) -> ArmLine:
    law = ENGINE_ARMS[arm].law if arm in ENGINE_ARMS else "full"
    assert law in LAWS
    jobs = make_jobs(shape, law, plan.requests * width, loaded.config.vocab_size)
    tokens = sum(len(job.depths) for job in jobs)
    own = ArmLine(
        shape=shape, width=width, arm=arm, repeat=repeat, seconds=0.0, tokens=tokens,
        tokens_per_second=0.0, decode_tokens_per_second=0.0,
    )  # fmt: skip
    if arm in DENSE_ARMS:
        with torch.inference_mode():
            seconds, decoding = run_dense(loaded.as_ouro(), jobs, width, graphed=DENSE_ARMS[arm])
        return replace(
            own,
            seconds=seconds,
            tokens_per_second=tokens / seconds,
            decode_tokens_per_second=(tokens - len(jobs)) / decoding,
        )
    how = ENGINE_ARMS[arm]
    is_cuda = loaded.device.type == "cuda"
    config = arm_config(
        width,
        mode=how.mode,
        is_cuda=is_cuda,
        is_async=how.is_async,
        has_log=how.has_log,
        in_step=how.in_step,
        in_flight=plan.in_flight,
    )
    with tempfile.TemporaryDirectory(dir=plan.log_in) as folder:
        db = Path(folder) / "bench.db" if how.has_log else None
        served = serve(loaded, jobs, config, db, judge)
    return _served_line(own, served, roofline)


def _served_line(own: ArmLine, served: Served, roofline: Roofline | None) -> ArmLine:
    bound = None
    if roofline is not None and served.steady_outputs:
        bound = roofline.tokens_per_second(own.width, served.mean_context, served.mean_depth)
    return replace(
        own,
        seconds=served.seconds,
        tokens_per_second=served.tokens / served.seconds,
        decode_tokens_per_second=served.steady_tokens_per_second,
        roofline=bound,
        of_roofline=None if bound is None else served.steady_tokens_per_second / bound,
        mean_depth=served.mean_depth,
        mean_context=served.mean_context,
        prompt_seconds=served.steady_prompt_seconds,
        idle_share=served.idle_share,
        log_seconds=served.log_seconds,
        steps=served.steps,
        problems=served.problems,
    )
