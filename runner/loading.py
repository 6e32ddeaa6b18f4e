"""Where a model comes from, and which device, dtype and context it runs with."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import torch

from rlt_fsm.arguments import path_text, shown, whole
from rlt_fsm.errors import CheckpointError, ConfigError

from .models.ouro import OuroConfig, OuroModel
from .models.weights import load_checkpoint

DEMO: Final = "demo"
DEMO_FOLDER: Final = Path(__file__).parent / "demo" / "checkpoint"
DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# What is fetched of a hub repository: data only, never code.
HUB_PATTERNS: Final = ("*.safetensors", "*.json")


class LoadedModel(NamedTuple):
    """A model in memory; `name` is what the log calls it, `folder` where it was read from."""

    name: str
    config: OuroConfig
    model: OuroModel
    folder: Path | None = None


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
    is_named = model == DEMO or not Path(model).is_dir()
    return LoadedModel(str(model) if is_named else folder.name, config, network, folder)


def find_model(model: str | Path) -> Path:
    """The folder of a model; a hub id is downloaded where `huggingface_hub` is installed.

    Raises:
        CheckpointError: neither a folder nor a hub id that can be fetched.
    """
    try:
        path_text("model", model)
    except ConfigError as error:
        raise CheckpointError(f"{error}: give 'demo', a folder or a hub id") from None
    if model == DEMO:
        return DEMO_FOLDER
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if isinstance(model, Path) or not _is_hub_id(model):
        raise CheckpointError(
            f"{model} is not a folder: give 'demo', a folder with config.json and weights, or a "
            "hub id such as 'owner/name'"
        )
    if find_spec("huggingface_hub") is None:
        raise CheckpointError(
            f"{model!r} is not a local folder, and fetching it needs huggingface_hub: install "
            "that, or download the model and give its folder"
        )
    return _fetch(model)


def _is_hub_id(model: str) -> bool:
    owner, slash, name = model.partition("/")
    is_pair = bool(owner and slash and name) and "/" not in name
    return is_pair and owner not in {".", "..", "~"} and os.sep not in name


def _fetch(model: str) -> Path:
    hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(model, allow_patterns=list(HUB_PATTERNS)))
    except Exception as error:  # the hub's errors share no base with anything but this
        raise CheckpointError(
            f"{model!r} is not a local folder and could not be fetched ({type(error).__name__}): "
            "check the name and the network, or give a local folder"
        ) from error


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
