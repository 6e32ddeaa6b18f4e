"""Model folders in Hugging Face layout: config.json and safetensors, in and out.

Every key, shape and dtype is checked against the model's own before any memory is taken for
weights, and nothing in a folder is ever executed. No downloads here.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlt_fsm.errors import CheckpointError

from .ouro import OuroConfig, OuroModel
from .ouro_config import read_json_object

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})  # as safetensors spells them


def load_checkpoint(
    folder: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
) -> tuple[OuroConfig, OuroModel]:
    """Read a folder into a model on `device` in `dtype`, in evaluation mode, without gradients.

    Raises:
        CheckpointError: no such folder or file, a configuration that cannot be honoured, or tensors
            that are missing, unknown, duplicated, misplaced, misshapen or not floating point.
    """
    root = Path(folder)
    if not root.is_dir():
        raise CheckpointError(f"{root} is not a folder: give one with config.json and weights")
    config = OuroConfig.from_json(root)
    with torch.device("meta"):
        model = OuroModel(config).to(dtype)
    homes = _check_tensors(root, {name: p.shape for name, p in model.state_dict().items()})
    model = model.to_empty(device=device).requires_grad_(requires_grad=False).eval()
    _fill(model, homes)
    return config, model


def save_checkpoint(folder: str | Path, config: OuroConfig, model: OuroModel) -> None:
    """Write config.json and one model.safetensors, in the dtype the model has."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config.to_mapping(), indent=2)
    (root / "config.json").write_text(text + "\n", encoding="utf-8")
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, root / SINGLE_FILE, metadata={"format": "pt"})


def _check_tensors(root: Path, wanted: Mapping[str, torch.Size]) -> dict[str, Path]:
    """Compare what the files hold with what the model needs; return where each tensor lives."""
    index = _read_index(root)
    homes: dict[str, Path] = {}
    for path in _weight_files(root, index):
        for name, dtype, shape in _headers(path):
            if name in homes:
                raise CheckpointError(
                    f"tensor {name} is in both {homes[name].name} and {path.name}: keep one"
                )
            if name not in wanted:
                raise CheckpointError(f"{path.name}: tensor {name} is not part of this model")
            if dtype not in FLOAT_DTYPES:
                kinds = ", ".join(sorted(FLOAT_DTYPES))
                raise CheckpointError(
                    f"{path.name}: tensor {name} has dtype {dtype}: must be one of {kinds}"
                )
            if shape != list(wanted[name]):
                raise CheckpointError(
                    f"{path.name}: tensor {name} has shape {shape}: config.json asks for "
                    f"{list(wanted[name])}"
                )
            if index is not None and index.get(name) != path.name:
                raise CheckpointError(
                    f"{INDEX_FILE} places tensor {name} in {index.get(name)!r}, but it is in "
                    f"{path.name}"
                )
            homes[name] = path
    if index is not None and (lost := sorted(index.keys() - homes.keys())):
        raise CheckpointError(f"{INDEX_FILE} lists tensor {lost[0]}, but {index[lost[0]]} lacks it")
    if missing := [name for name in wanted if name not in homes]:
        raise CheckpointError(
            f"{root}: tensor {missing[0]} is missing ({len(missing)} of {len(wanted)} are)"
        )
    return homes


def _read_index(root: Path) -> dict[str, str] | None:
    """The index's tensor → file map, or None where the folder has a single file."""
    path = root / INDEX_FILE
    if not path.exists():
        return None
    if (root / SINGLE_FILE).exists():
        raise CheckpointError(f"{root} has both {SINGLE_FILE} and {INDEX_FILE}: keep one")
    data: dict[str, Any] = read_json_object(path)
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map must be an object from tensor to file name")
    for name, shard in weight_map.items():
        is_basename = isinstance(shard, str) and shard == PurePosixPath(shard).name
        if not is_basename or "\\" in shard or not shard.endswith(".safetensors"):
            raise CheckpointError(
                f"{path}: weight_map[{name!r}]={shard!r}: must be the plain name of a "
                ".safetensors file in the same folder"
            )
    return weight_map


def _weight_files(root: Path, index: Mapping[str, str] | None) -> list[Path]:
    names = [SINGLE_FILE] if index is None else sorted(set(index.values()))
    for name in names:
        if not (root / name).is_file():
            raise CheckpointError(
                f"{root / name} does not exist: weights are read from safetensors only"
            )
    return [root / name for name in names]


def _headers(path: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, dtype and shape of every tensor in a file; the data is not read."""
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (a file handle, not a mapping)
                view = file.get_slice(name)
                yield name, view.get_dtype(), view.get_shape()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error


def _fill(model: OuroModel, homes: Mapping[str, Path]) -> None:
    """Copy every tensor into the model, one file at a time; casts and moves on the way."""
    targets: dict[str, Tensor] = model.state_dict()
    for path in sorted(set(homes.values())):
        with safe_open(path, framework="pt") as file:
            for name in (name for name, home in homes.items() if home == path):
                targets[name].copy_(file.get_tensor(name))
