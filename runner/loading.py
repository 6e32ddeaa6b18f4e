"""Reading a model into memory, and which device, dtype and context it runs with."""

from pathlib import Path
from typing import Final, NamedTuple

import torch

from rlt_fsm.arguments import shown, whole
from rlt_fsm.errors import ConfigError

from .hub import find_model, name_of
from .models.architectures import ModelConfig, Network
from .models.ouro import OuroModel
from .models.weights import load_checkpoint

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class LoadedModel(NamedTuple):
    """A model in memory; `name` is what the log calls it, `folder` where it was read from."""

    name: str
    config: ModelConfig
    model: Network
    folder: Path | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are held in."""
        return next(self.model.parameters()).dtype

    def as_ouro(self) -> OuroModel:
        """The network, for code that knows no architecture but Ouro's."""
        assert isinstance(self.model, OuroModel), self.name
        return self.model


def load_model(model: str | Path, device: str, dtype: str) -> LoadedModel:
    """Read `demo`, a local folder, or a hub id, onto a device.

    Raises:
        CheckpointError: there is no such model, or it cannot be used.
        ConfigError: no such device or dtype.
    """
    place = resolve_device(device)
    number = resolve_dtype(dtype, place)
    folder = find_model(model)
    config, network = load_checkpoint(folder, number, place)
    return LoadedModel(name_of(model, folder), config, network, folder)


def resolve_device(device: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if not isinstance(device, str):
        raise ConfigError(f"device={shown(device)}: must be 'auto', 'cpu' or 'cuda[:N]'")
    if device == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device={device!r}: must be 'auto', 'cpu' or 'cuda[:N]'") from error
    if place.type not in {"cpu", "cuda"}:
        raise ConfigError(f"device={device!r}: must be 'auto', 'cpu' or 'cuda[:N]'")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={device!r}: {torch.cuda.device_count()} CUDA devices can be used here"
        )
    return place


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and float32 on a CPU."""
    if not isinstance(dtype, str) or dtype not in {"auto", *DTYPES}:
        raise ConfigError(f"dtype={shown(dtype)}: must be 'auto' or one of {', '.join(DTYPES)}")
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return DTYPES[dtype]


def resolve_context(asked: int | None, most: int) -> int:
    """The context in tokens: what is asked for, or the model's own."""
    if asked is None:
        return most
    try:
        return whole("max_model_len", asked, least=1, most=most)
    except ConfigError as error:
        raise ConfigError(f"{error}, the model's context") from None
