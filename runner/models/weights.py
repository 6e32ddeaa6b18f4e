"""Model folders in Hugging Face layout: config.json and safetensors, in and out.

Every key, shape and dtype is checked against the model's own before any memory is taken for
weights, and nothing in a folder is ever executed. No downloads here.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlt_fsm.errors import CheckpointError

from .architectures import ModelConfig, Network, make_network, read_config
from .config_rules import read_json_object

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOAT_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})  # as safetensors spells them


class Stored(NamedTuple):
    """One tensor as a file's header tells of it; `dtype` as safetensors spells it."""

    name: str
    path: Path
    dtype: str
    shape: list[int]


class Survey(NamedTuple):
    """The file of every tensor, and what is wrong with them, a sentence each."""

    homes: dict[str, Path]
    problems: list[str]


def load_checkpoint(
    folder: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
) -> tuple[ModelConfig, Network]:
    """Read a folder into a model on `device` in `dtype`, in evaluation mode, without gradients.

    Raises:
        CheckpointError: no such folder or file, a configuration that cannot be honoured, or tensors
            that are missing, unknown, duplicated, misplaced, misshapen or not floating point.
    """
    config, model = describe(folder, dtype)
    homes, problems = survey(Path(folder), model)
    if problems:
        raise CheckpointError(problems[0])
    model = model.to_empty(device=device).requires_grad_(requires_grad=False).eval()
    _fill(model, homes)
    return config, model


def describe(
    folder: str | Path, dtype: torch.dtype = torch.bfloat16
) -> tuple[ModelConfig, Network]:
    """What config.json asks for, as a model without memory (on `meta`); no weights are read.

    Raises:
        CheckpointError: no such folder, or a configuration that cannot be honoured.
    """
    root = Path(folder)
    if not root.is_dir():
        raise CheckpointError(f"{root} is not a folder: give one with config.json and weights")
    config = read_config(root)
    with torch.device("meta"):
        return config, make_network(config).to(dtype)


def save_checkpoint(folder: str | Path, config: ModelConfig, model: Network) -> None:
    """Write config.json and one model.safetensors, in the dtype the model has."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config.to_mapping(), indent=2)
    (root / "config.json").write_text(text + "\n", encoding="utf-8")
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, root / SINGLE_FILE, metadata={"format": "pt"})


def survey(root: Path, model: Network) -> Survey:
    """Compare what the files hold with what the model needs, and may find; no data is read.

    Raises:
        CheckpointError: the files or their index cannot be read at all.
    """
    index = _read_index(root)
    needed = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wanted = needed | {name: needed[source] for name, source in model.tied_tensors.items()}
    homes: dict[str, Path] = {}
    problems: list[str] = []
    for stored in stored_tensors(root):
        name, file = stored.name, stored.path.name
        if (problem := _misfit(stored, wanted)) is not None:
            problems.append(problem)
        elif name in homes:
            problems.append(f"tensor {name} is in both {homes[name].name} and {file}: keep one")
        elif index is not None and index.get(name) != file:
            problems.append(
                f"{INDEX_FILE} places tensor {name} in {index.get(name)!r}, but it is in {file}"
            )
        homes.setdefault(name, stored.path)
    if index is not None:
        problems += [
            f"{INDEX_FILE} lists tensor {name}, but {file} lacks it"
            for name, file in sorted(index.items())
            if name not in homes
        ]
    needed_ones = needed.keys() - model.optional_tensors
    missing = [name for name in needed if name in needed_ones and name not in homes]
    problems += [
        f"{root.name}: tensor {name} is missing ({len(missing)} of {len(needed_ones)} are)"
        for name in missing
    ]
    return Survey(homes, problems)


def stored_tensors(root: Path) -> Iterator[Stored]:
    """Every tensor in a folder's weight files, by their headers.

    Raises:
        CheckpointError: a file is missing or cannot be read.
    """
    for path in _weight_files(root, _read_index(root)):
        yield from _headers(path)


def _misfit(stored: Stored, wanted: Mapping[str, torch.Size]) -> str | None:
    """What is wrong with one stored tensor, in a sentence, or None."""
    name, file = stored.name, stored.path.name
    if name not in wanted:
        return f"{file}: tensor {name} is not part of this model"
    if stored.dtype not in FLOAT_DTYPES:
        kinds = ", ".join(sorted(FLOAT_DTYPES))
        return f"{file}: tensor {name} has dtype {stored.dtype}: must be one of {kinds}"
    if stored.shape != list(wanted[name]):
        return (
            f"{file}: tensor {name} has shape {stored.shape}: config.json asks for "
            f"{list(wanted[name])}"
        )
    return None


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


def _headers(path: Path) -> Iterator[Stored]:
    """The tensors of one file; the data is not read."""
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (a file handle, not a mapping)
                view = file.get_slice(name)
                yield Stored(name, path, view.get_dtype(), view.get_shape())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error


def _fill(model: Network, homes: Mapping[str, Path]) -> None:
    """Copy every tensor into the model, one file at a time; casts and moves on the way.

    Raises:
        CheckpointError: a tensor differs from the one that it is tied to.
    """
    tied = model.tied_tensors
    _copy(model.state_dict(), {name: home for name, home in homes.items() if name not in tied})
    for name in homes.keys() & tied.keys():
        source = model.state_dict()[tied[name]]
        copy = torch.empty_like(source)
        _copy({name: copy}, {name: homes[name]})
        if not torch.equal(copy, source):
            raise CheckpointError(
                f"{homes[name].name}: tensor {name} differs from {tied[name]}, to which this "
                "architecture ties it"
            )


def _copy(targets: Mapping[str, Tensor], homes: Mapping[str, Path]) -> None:
    for path in sorted(set(homes.values())):
        with safe_open(path, framework="pt") as file:
            for name in (name for name, home in homes.items() if home == path):
                targets[name].copy_(file.get_tensor(name))
