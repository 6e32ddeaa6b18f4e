"""What a model folder holds and what serving it takes, by its headers; no weights are read."""

from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import torch

from rlt_fsm.config import CacheConfig, EngineConfig

from .hub import DESCRIPTIONS, EVERYTHING, find_model, is_local, name_of
from .kv_layout import KVGeometry, geometry_of
from .kv_sizing import HOST_FRACTION, available_host_bytes, device_memory
from .loading import resolve_device, resolve_dtype
from .memory_plan import working_memory
from .models.shape import ModelShape
from .models.weights import describe, stored_tensors

_BYTES: Final = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}  # others are no weights of ours


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What the weight files hold; `dtypes` counts tensors by dtype, as safetensors spells it."""

    tensors: int
    bytes: int
    dtypes: dict[str, int]


class KVNeed(msgspec.Struct, frozen=True, kw_only=True):
    """KV of one token in `dtype`: in one plane, and in all of them."""

    dtype: str
    planes: int
    bytes_per_plane: int
    bytes_per_token: int


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this machine can serve the model: `context` tokens is the most for one request."""

    device: str
    dtype: str
    weight_bytes: int
    available_bytes: int
    context: int
    fits: str  # yes, shorter or no


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model in numbers. `stored` is None where its weights were not fetched."""

    model: str
    architecture: str
    depths: int
    layers: int
    prelude_layers: int
    coda_layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context: int
    eos_token_ids: tuple[int, ...]
    parameters: int
    stored: Stored | None
    kv: KVNeed
    here: Here


def inspect_model(model: str | Path, *, device: str = "auto", dtype: str = "auto") -> ModelReport:
    """Describe `demo`, a folder or a hub id, of which only the small JSON files are fetched.

    Raises:
        CheckpointError: there is no such model, or its description cannot be honoured.
        ConfigError: no such device or dtype.
    """
    place = resolve_device(device)
    number = resolve_dtype(dtype, place)
    folder = find_model(model, patterns=EVERYTHING if is_local(model) else DESCRIPTIONS)
    config, network = describe(folder, number)
    shape = config.shape
    parameters = sum(parameter.numel() for parameter in network.parameters())
    geometry = geometry_of(shape, CacheConfig(), number)
    return ModelReport(
        model=name_of(model, folder),
        architecture=config.architecture,
        depths=shape.depths,
        layers=shape.layers,
        prelude_layers=shape.prelude_layers,
        coda_layers=shape.coda_layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        context=shape.context,
        eos_token_ids=shape.eos_token_ids,
        parameters=parameters,
        stored=_stored(folder) if is_local(model) else None,
        kv=_kv_need(geometry),
        here=_here(shape, geometry, parameters * number.itemsize, place),
    )


def _kv_need(geometry: KVGeometry) -> KVNeed:
    per_plane = geometry.bytes_per_block // geometry.block_size
    return KVNeed(
        dtype=_name(geometry.dtype),
        planes=geometry.planes,
        bytes_per_plane=per_plane,
        bytes_per_token=per_plane * geometry.planes,
    )


def _stored(folder: Path) -> Stored:
    dtypes: Counter[str] = Counter()
    size = 0
    for tensor in stored_tensors(folder):
        dtypes[tensor.dtype] += 1
        size += torch.Size(tensor.shape).numel() * _BYTES.get(tensor.dtype, 0)
    return Stored(tensors=sum(dtypes.values()), bytes=size, dtypes=dict(sorted(dtypes.items())))


def _here(shape: ModelShape, geometry: KVGeometry, weight_bytes: int, device: torch.device) -> Here:
    """What is left for KV beside the weights, as a runner with the default config would see it."""
    config = EngineConfig()
    if device.type == "cuda":
        in_use, total = device_memory(device)
        backend = "torch" if geometry.boundary else "triton"
        working = working_memory(shape, geometry.dtype, config, backend=backend, graphs=0)
        available = total - in_use
        share = int(total * config.cache.gpu_memory_utilization)
        room = share - in_use - weight_bytes - working.total
    else:
        available = available_host_bytes()
        room = int((available - weight_bytes) * HOST_FRACTION)
    pages = max(0, room) // geometry.bytes_per_block // geometry.planes
    context = min(shape.context, pages * geometry.block_size)
    fits = "yes" if context == shape.context else "shorter" if context else "no"
    return Here(
        device=str(device),
        dtype=_name(geometry.dtype),
        weight_bytes=weight_bytes,
        available_bytes=available,
        context=context,
        fits=fits,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- for people --------------------------------------------------------------------------------


def report_as_text(report: ModelReport) -> str:
    """One line for each thing worth knowing."""
    kv, stored = report.kv, report.stored
    layers = f"{report.layers} in each loop"
    if report.prelude_layers or report.coda_layers:
        layers += f", {report.prelude_layers} before and {report.coda_layers} after"
    rows = [
        ("model", f"{report.model} ({report.architecture})"),
        ("loops", f"{report.depths} at full depth"),
        ("layers", layers),
        ("sizes", f"hidden {report.hidden_size:,}, MLP {report.intermediate_size:,}"),
        ("heads", f"{report.heads} of {report.head_dim}, {report.kv_heads} for K and V"),
        ("vocabulary", f"{report.vocab_size:,} tokens"),
        ("context", f"{report.context:,} tokens"),
        ("eos ids", " ".join(map(str, report.eos_token_ids)) or "none"),
        ("parameters", f"{report.parameters:,}"),
        ("stored", "not fetched" if stored is None else _stored_as_text(stored)),
        ("KV per token", _kv_as_text(kv)),
        ("served here", _here_as_text(report)),
    ]
    return "\n".join(f"{name:<13} {text}" for name, text in rows)


def _kv_as_text(kv: KVNeed) -> str:
    in_each = f"{kv.bytes_per_plane:,} bytes in each of {kv.planes} planes"
    return f"{in_each}, {kv.bytes_per_token:,} in all ({kv.dtype})"


def _stored_as_text(stored: Stored) -> str:
    dtypes = ", ".join(f"{count} of {dtype}" for dtype, count in stored.dtypes.items())
    return f"{stored.tensors} tensors ({dtypes}), {stored.bytes:,} bytes"


def _here_as_text(report: ModelReport) -> str:
    here = report.here
    memory = (
        f"weights take {_gib(here.weight_bytes)} of {_gib(here.available_bytes)} GiB on "
        f"{here.device} in {here.dtype}"
    )
    match here.fits:
        case "yes":
            return f"yes: {memory}, and a request of full context fits"
        case "shorter":
            return f"up to {here.context:,} tokens (set max_model_len): {memory}"
        case _:
            return f"no: {memory}, and no KV fits beside them"


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 2**30:,.2f}"
