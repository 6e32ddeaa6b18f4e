"""Whether a checkpoint is whole, and whether serving it gives what the plain forward gives.

Three questions in turn: is every tensor there and finite; does a prompt, served in chunks through
the engine, get the tokens of the plain forward at full depth; and where its tokens leave early.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor

from rlt_fsm.config import CacheConfig, EngineConfig, ExitConfig, SchedulerConfig
from rlt_fsm.engine import Engine
from rlt_fsm.errors import RltError
from rlt_fsm.outputs import RequestOutput
from rlt_fsm.params import SamplingParams
from rlt_fsm.progress_line import Pace, bar_of

from .hub import find_model, name_of
from .loading import LoadedModel, load_model, resolve_device, resolve_dtype
from .models.dense import sequence_logits
from .models.weights import FLOAT_DTYPES, describe, survey
from .text import load_tokenizer
from .torch_runner import TorchRunner

Tell = Callable[[str], None]
PROMPT_TOKENS: Final = 24
OUTPUTS: Final = 8
_BLOCK, _CHUNK = 4, 5  # small and no multiple of each other: the prompt crosses blocks and chunks
_SEED: Final = 1
# How far log-probabilities may be apart: rounding of the dtype, through all layers and loops.
TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}


class ServedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, served and compared; `largest` is the largest difference of a log-probability."""

    name: str
    exit_depths: list[int]
    token_ids: list[int]
    largest: float
    tolerance: float
    differences: list[str]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """`problems` of the tensors, a sentence each; with any, nothing is served."""

    model: str
    device: str
    dtype: str
    tensors: int
    problems: list[str]
    served: list[ServedCheck]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems and not any(line.differences for line in self.served)


def check_model(
    model: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    prompt: str | None = None,
    tell: Tell = lambda _: None,
) -> CheckReport:
    """Check `demo`, a folder or a hub id; the plain forward runs on the CPU in float32.

    `tell` hears what is being done.

    Raises:
        CheckpointError: there is no such model, or it cannot be read as one.
        ConfigError: no such device or dtype, or too little memory.
        RltError: the prompt cannot be used.
    """
    place = resolve_device(device)
    number = resolve_dtype(dtype, place)
    folder = find_model(model)
    _, blank = describe(folder)
    homes, problems = survey(folder, blank)
    problems = [*problems, *_not_finite(homes, tell)]
    served: list[ServedCheck] = []
    if not problems:
        tell("loading the model")
        loaded = load_model(folder, device, dtype)
        is_plain = place.type == "cpu" and number is torch.float32
        plain = loaded if is_plain else load_model(folder, "cpu", "float32")
        tokens = _prompt(loaded, folder, prompt)
        tell("serving, and computing the same plainly")
        full = loaded.config.shape.depths
        served = [
            _serve("full depth", loaded, plain, tokens, [full] * OUTPUTS),
            _serve("early exits", loaded, plain, tokens, _early(full)),
        ]
    return CheckReport(
        model=name_of(model, folder),
        device=str(place),
        dtype=str(number).removeprefix("torch."),
        tensors=len(homes),
        problems=problems,
        served=served,
    )


def _not_finite(homes: dict[str, Path], tell: Tell) -> list[str]:
    """A sentence for every tensor that holds a NaN or an infinity."""
    problems: list[str] = []
    seen, pace = 0, Pace()
    for path in sorted(set(homes.values())):
        with safe_open(path, framework="pt") as file:
            for name in (name for name, home in homes.items() if home == path):
                seen += 1
                pace.note(seen, len(homes))
                tell(f"{bar_of(seen, len(homes))} tensor {seen} of {len(homes)}{pace.text()}")
                if file.get_slice(name).get_dtype() not in FLOAT_DTYPES:  # refused already
                    continue
                tensor: Tensor = file.get_tensor(name)
                if bad := int((~torch.isfinite(tensor)).sum()):
                    problems.append(
                        f"{path.name}: tensor {name} has {bad:,} of {tensor.numel():,} numbers "
                        "that are NaN or infinite"
                    )
    return problems


def _prompt(loaded: LoadedModel, folder: Path, prompt: str | None) -> list[int]:
    """The token ids of a text, or some that every model has."""
    shape = loaded.config.shape
    room = shape.context - OUTPUTS + 1
    if room < 1:
        raise RltError(f"the model's context of {shape.context} tokens is too short to check")
    if prompt is None:
        return [(7 * i + 3) % shape.vocab_size for i in range(min(PROMPT_TOKENS, room))]
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        raise RltError("--prompt needs a tokenizer.json in the model's folder: leave it out")
    tokens = tokenizer.encode(prompt)
    if not 1 <= len(tokens) <= room:
        raise RltError(f"--prompt has {len(tokens)} tokens: must have 1 to {room}")
    return tokens


def _early(full: int) -> list[int]:
    """Depths of the outputs: the first at full depth, the others from 1 to full in turn."""
    return [full, *islice(cycle(range(1, full + 1)), OUTPUTS - 1)]


# ---- serving and comparing -----------------------------------------------------------------------


def _serve(
    name: str, loaded: LoadedModel, plain: LoadedModel, prompt: Sequence[int], depths: list[int]
) -> ServedCheck:
    output = _through_the_engine(loaded, prompt, depths)
    assert output.logprobs is not None
    tokens = [*prompt, *output.token_ids[:-1]]
    loops = [loaded.config.shape.depths] * len(prompt) + output.exit_depths[1:]
    with torch.inference_mode():
        logits = sequence_logits(plain.model, tokens, loops, _SEED)[len(prompt) - 1 :]
    wanted = torch.log_softmax(logits.float(), dim=-1)
    tolerance = TOLERANCE[loaded.dtype]
    differences, largest = [], 0.0
    if output.exit_depths != depths[: len(output.exit_depths)]:
        differences.append(f"exit depths {output.exit_depths} instead of {depths}")
    for idx, (token, logprob) in enumerate(zip(output.token_ids, output.logprobs, strict=True)):
        assert logprob is not None
        plain_best = int(wanted[idx].argmax())
        apart = abs(logprob - float(wanted[idx, token]))
        gap = float(wanted[idx, plain_best] - wanted[idx, token])
        largest = max(largest, apart)  # a NaN is told below
        if not (apart <= tolerance and gap <= tolerance):
            differences.append(
                f"output {idx}: token {token} with log-probability {logprob:.4f}, the plain "
                f"forward has token {plain_best}, and {float(wanted[idx, token]):.4f} for {token}"
            )
    return ServedCheck(
        name=name,
        exit_depths=output.exit_depths,
        token_ids=output.token_ids,
        largest=largest,
        tolerance=tolerance,
        differences=differences,
    )


def _through_the_engine(
    loaded: LoadedModel, prompt: Sequence[int], depths: Sequence[int]
) -> RequestOutput:
    """The prompt in several chunks over small blocks, greedily, every depth as given."""
    length = len(prompt) + OUTPUTS - 1
    pages = -(-length // _BLOCK)
    runner = TorchRunner(loaded, max_model_len=length)
    shape = loaded.config.shape
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=1, prefill_chunk_size=_CHUNK),
        cache=CacheConfig(block_size=_BLOCK, num_blocks=pages * (shape.depths + 1)),
        exit=ExitConfig(mode="trace"),
    )
    params = SamplingParams(
        max_tokens=OUTPUTS,
        min_loops=1,
        exit_depths=tuple(depths),
        ignore_eos=True,
        logprobs=0,
        seed=_SEED,
    )
    with Engine(runner, config) as engine:
        engine.add_request("check", list(prompt), params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    return output
    raise RltError("the engine ended without an output")


# ---- for people --------------------------------------------------------------------------------

_SHOWN: Final = 20


def check_as_text(report: CheckReport) -> str:
    """The answers, and everything that differs."""
    lines = [f"model        {report.model} on {report.device} in {report.dtype}"]
    problems = report.problems
    fine = "all as config.json asks, all finite"
    lines.append(f"tensors      {report.tensors}, {len(problems)} wrong" if problems
                 else f"tensors      {report.tensors}, {fine}")  # fmt: skip
    lines += _some(problems)
    for line in report.served:
        told = "differ" if line.differences else "agree"
        lines.append(
            f"{line.name:<12} {len(line.token_ids)} outputs {told} with the plain forward; "
            f"log-probabilities are at most {line.largest:.1e} apart ({line.tolerance:g} allowed)"
        )
        lines += _some(line.differences)
    lines.append("well" if report.ok else "not well")
    return "\n".join(lines)


def _some(sentences: Sequence[str]) -> list[str]:
    lines = [f"  {sentence}" for sentence in sentences[:_SHOWN]]
    if (hidden := len(sentences) - _SHOWN) > 0:
        lines.append(f"  … and {hidden} more (--json lists all)")
    return lines
