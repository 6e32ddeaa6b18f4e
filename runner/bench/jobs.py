"""The requests of a benchmark and the model they run on: seeded, the same list for every arm."""

import math
import random
from collections.abc import Callable
from typing import Final, NamedTuple

import torch

from runner.loading import LoadedModel
from runner.models.ouro import OuroConfig, OuroModel

FULL_DEPTH: Final = 4
Law = Callable[[random.Random], int]


class Job(NamedTuple):
    """One request: its prompt, and the depth of each of its outputs (the first is full)."""

    prompt: tuple[int, ...]
    depths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Positions at the end, the last output included."""
        return len(self.prompt) + len(self.depths)


def _paper(dice: random.Random) -> int:
    """2, 3 or 4 loops with .65, .20 and .15: 2.5 in the mean."""
    return dice.choices((2, 3, 4), weights=(0.65, 0.20, 0.15))[0]


def _full(_dice: random.Random) -> int:
    return FULL_DEPTH


LAWS: Final[dict[str, Law]] = {"paper": _paper, "full": _full}


def _log_uniform(dice: random.Random, low: int, high: int) -> int:
    return round(math.exp(dice.uniform(math.log(low), math.log(high))))


SHAPES: Final[dict[str, Callable[[random.Random], tuple[int, int]]]] = {
    "512/128": lambda _dice: (512, 128),
    "128/512": lambda _dice: (128, 512),
    "mixed": lambda dice: (_log_uniform(dice, 32, 512), _log_uniform(dice, 32, 384)),
    "tiny": lambda dice: (dice.randint(3, 9), dice.randint(2, 6)),  # to show that it runs
}


def make_jobs(shape: str, law: str, count: int, vocab_size: int) -> list[Job]:
    """`count` requests; lengths depend on the shape alone, so that laws can be compared."""
    jobs = []
    for i in range(count):
        dice = random.Random(f"{shape}/{i}")  # noqa: S311 (repeatable lengths, no secrets)
        prompt_len, outputs = SHAPES[shape](dice)
        prompt = tuple(dice.randrange(vocab_size) for _ in range(prompt_len))
        depths = (FULL_DEPTH, *(LAWS[law](dice) for _ in range(outputs - 1)))
        jobs.append(Job(prompt, depths))
    return jobs


OURO_1_4B: Final = OuroConfig(
    vocab_size=49152,
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=128,
    max_position_embeddings=65536,
    total_ut_steps=FULL_DEPTH,
    rope_theta=1_000_000.0,
    rms_norm_eps=1e-6,
)
TINY: Final = OuroConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=512,
    total_ut_steps=FULL_DEPTH,
    rope_theta=10_000.0,
    rms_norm_eps=1e-6,
)


def random_model(config: OuroConfig, name: str, device: torch.device) -> LoadedModel:
    """Random weights in a model's exact shape: speed depends on shapes, lengths and depths only."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with torch.device("meta"):
        model = OuroModel(config).to(dtype)
    model = model.to_empty(device=device).requires_grad_(requires_grad=False).eval()
    generator = torch.Generator(device=device).manual_seed(0)
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name:
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, config.initializer_range, generator=generator)
    return LoadedModel(name, config, model)
