"""Which device, dtype and context a model runs with, and a model folder brought there."""

from pathlib import Path
from typing import Final, NamedTuple

import torch

from rlt_fsm.errors import ConfigError

from .models.ouro import OuroConfig, OuroModel
from .models.weights import load_checkpoint

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class LoadedModel(NamedTuple):
    """A model in memory; `name` is what the log calls it."""

    name: str
    config: OuroConfig
    model: OuroModel


def load_model(folder: str | Path, device: str, dtype: str) -> LoadedModel:
    """Read a checkpoint folder onto a device.

    Raises:
        CheckpointError: the folder cannot be used.
        ConfigError: no such device or dtype.
    """
    place = resolve_device(device)
    config, model = load_checkpoint(folder, resolve_dtype(dtype, place), place)
    return LoadedModel(Path(folder).resolve().name, config, model)


def resolve_device(device: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device={device!r}: must be 'auto', 'cpu' or 'cuda[:N]'") from error
    if place.type not in {"cpu", "cuda"}:
        raise ConfigError(f"device={device!r}: must be 'auto', 'cpu' or 'cuda[:N]'")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={device!r}: {torch.cuda.device_count()} CUDA devices are here")
    return place


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and float32 on a CPU."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise ConfigError(f"dtype={dtype!r}: must be 'auto' or one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def resolve_context(asked: int | None, most: int) -> int:
    """The context in tokens: what is asked for, or the model's own."""
    if asked is None:
        return most
    if not 1 <= asked <= most:
        raise ConfigError(f"max_model_len={asked}: must be in [1, {most}], the model's context")
    return asked
