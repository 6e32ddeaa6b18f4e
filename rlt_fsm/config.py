"""Frozen configurations, their JSON form, and one table of forbidden combinations.

Values only: nothing here looks at a machine, a model or a clock. Automatic values (None) are
resolved by the engine when it starts; `run.config` in the log holds the resolved ones.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from . import misfit
from .errors import ConfigError
from .plain import plain
from .wording import did_you_mean

Mode = Literal["refill", "no_refill", "mixed"]
Policy = Literal["fcfs", "priority"]
Layout = Literal["last_exited", "shared"]
Durability = Literal["group", "step", "off"]
ExitMode = Literal["ouro", "ouro_delayed", "trace"]
AttentionBackend = Literal["auto", "torch", "triton"]


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which work goes next and how much of it. Batch sizes count requests and tokens."""

    mode: Mode = "refill"
    policy: Policy = "fcfs"
    enable_preemption: bool = False
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 128
    prefill_chunk_size: int = 128
    min_coda_batch_size: int = 1
    max_prefill_batches_before_decode: int = 1
    admission_scan_limit: int = 64
    max_admission_bypasses: int = 8
    max_waiting: int | None = None


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The KV pool. `num_blocks` counts physical blocks over all planes; None: sized at start."""

    num_blocks: int | None = None
    block_size: int = 16
    layout: Layout = "last_exited"
    incremental_allocation: bool = False
    enable_prefix_caching: bool = False
    watermark_ratio: float = 0.0
    host_snapshot_blocks: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None


class ExecutionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How batches run and when events become durable."""

    atomic_prefill: bool = True
    async_scheduling: bool = False
    max_in_flight: int = 3
    cuda_graphs: bool = False
    attention_backend: AttentionBackend = "auto"
    batch_invariant: bool = False
    durability: Durability = "group"


class ExitConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a token leaves the loop. None: `ouro`, or `ouro_delayed` when asynchronous."""

    mode: ExitMode | None = None


class SpeculativeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Self-speculation: draft with the first loops, verify with all of them."""

    num_speculative_tokens: int
    draft_loops: int = 2


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides how an engine behaves."""

    scheduler: SchedulerConfig = SchedulerConfig()
    cache: CacheConfig = CacheConfig()
    execution: ExecutionConfig = ExecutionConfig()
    exit: ExitConfig = ExitConfig()
    speculative: SpeculativeConfig | None = None


# ---- rules -----------------------------------------------------------------------------------

_POSITIVE_INTS = (
    "scheduler.max_num_seqs",
    "scheduler.max_num_batched_tokens",
    "scheduler.prefill_chunk_size",
    "scheduler.min_coda_batch_size",
    "scheduler.max_prefill_batches_before_decode",
    "scheduler.admission_scan_limit",
    "scheduler.max_admission_bypasses",
    "cache.block_size",
    "execution.max_in_flight",
)
_OPTIONAL_POSITIVE_INTS = (
    "cache.num_blocks",
    "cache.kv_cache_memory_bytes",
    "scheduler.max_waiting",
)

_MOST = {"scheduler.max_num_seqs": 2**20, "cache.kv_cache_memory_bytes": 2**63 - 1}
_MOST_ELSEWHERE = 2**31 - 1

Rule = tuple[Callable[[EngineConfig], bool], str]

# (is broken?, what to say): one row per combination that cannot work.
FORBIDDEN: tuple[Rule, ...] = (
    (
        lambda c: c.scheduler.mode == "mixed" and c.execution.atomic_prefill,
        "scheduler.mode='mixed' needs split prefill: set execution.atomic_prefill=False",
    ),
    (
        lambda c: c.scheduler.mode == "mixed" and c.speculative is not None,
        "scheduler.mode='mixed' does not go with speculative: drop one of the two",
    ),
    (
        lambda c: c.cache.num_blocks is not None and c.cache.kv_cache_memory_bytes is not None,
        "cache.num_blocks and cache.kv_cache_memory_bytes both size the pool: give one",
    ),
    (
        lambda c: c.cache.enable_prefix_caching and c.cache.layout == "shared",
        (
            "cache.enable_prefix_caching needs cache.layout='last_exited': a shared plane keeps no "
            "full-depth prompt pages"
        ),
    ),
    (
        lambda c: c.execution.async_scheduling and c.exit.mode == "ouro",
        (
            "execution.async_scheduling reads a gate one loop late: set exit.mode to "
            "'ouro_delayed' or 'trace'"
        ),
    ),
)

# What this version declares but cannot run yet; the same form.
NOT_YET: tuple[Rule, ...] = (
    (lambda c: c.speculative is not None, "speculative does not run in this version: drop it"),
)


def to_json(config: EngineConfig) -> str:
    """The configuration as JSON, every field present."""
    return msgspec.json.encode(config).decode()


def from_mapping(data: Mapping[str, Any]) -> EngineConfig:
    """A configuration from the JSON object of a workload file; unknown keys are refused."""
    try:
        return msgspec.convert(data, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(misfit.sentence(error, data, EngineConfig)) from error


def _field(config: EngineConfig, path: str) -> object:
    section, _, name = path.partition(".")
    return getattr(getattr(config, section), name)


def validate(config: EngineConfig) -> EngineConfig:
    """The configuration in plain values, or ConfigError naming field, value and rule."""
    if not isinstance(config, EngineConfig):
        raise ConfigError(f"config={plain(config)!r}: must be an EngineConfig")
    # Types and literals: a round trip through the codec checks what a constructor does not.
    config = from_mapping(msgspec.to_builtins(config, enc_hook=plain))
    for path in _POSITIVE_INTS:
        _require_positive(path, _field(config, path))
    for path in _OPTIONAL_POSITIVE_INTS:
        if (value := _field(config, path)) is not None:
            _require_positive(path, value)
    cache = config.cache
    if not 0.0 <= cache.watermark_ratio < 1.0:
        raise ConfigError(f"cache.watermark_ratio={cache.watermark_ratio}: must be in [0, 1)")
    if not 0.0 < cache.gpu_memory_utilization <= 1.0:
        raise ConfigError(
            f"cache.gpu_memory_utilization={cache.gpu_memory_utilization}: must be in (0, 1]"
        )
    if cache.host_snapshot_blocks is not None and cache.host_snapshot_blocks < 0:
        raise ConfigError(
            f"cache.host_snapshot_blocks={cache.host_snapshot_blocks}: must be 0 or more, or null"
        )
    for is_broken, sentence in (*FORBIDDEN, *NOT_YET):
        if is_broken(config):
            raise ConfigError(sentence)
    return config


def _require_positive(path: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{path}={value!r}: must be a whole number of 1 or more")
    most = _MOST.get(path, _MOST_ELSEWHERE)
    if value > most:
        raise ConfigError(f"{path}={value}: must be {most:,} or less")


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """What `--set SECTION.FIELD=VALUE` asks for, by field.

    Raises:
        ConfigError: a pair without `=`.
    """
    settings = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set {pair}: must be SECTION.FIELD=VALUE")
        settings[path.strip()] = value.strip()
    return settings


def field_names() -> list[str]:
    """Every `section.field` that `--set` can change, in order."""
    data = msgspec.to_builtins(EngineConfig())
    return sorted(f"{s}.{n}" for s, v in data.items() if isinstance(v, dict) for n in v)


def override(config: EngineConfig, settings: Mapping[str, str]) -> EngineConfig:
    """Apply `--set section.field=value` pairs; values are JSON, or bare text where that fails.

    Raises:
        ConfigError: unknown section or field (the nearest names are listed), or a value of a wrong
            type.
    """
    data = msgspec.to_builtins(config)
    for path, text in settings.items():
        section, _, name = path.partition(".")
        fields = data.get(section)
        if not isinstance(fields, dict) or name not in fields:
            known = field_names()
            instead = did_you_mean(path, known) or f"known: {', '.join(known)}"
            raise ConfigError(f"--set {path}: no such field: {instead}")
        try:
            fields[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            fields[name] = text
    return from_mapping(data)
