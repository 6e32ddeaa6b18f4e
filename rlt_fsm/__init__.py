"""rlt-fsm: a serving engine for recurrent-loop language models, every transition logged.

The engine's mind: no tensors here. `runner` computes, `audit` verifies.
"""

from .async_engine import AsyncEngine
from .batch import Batch, BatchResult, ModelFacts, RequestSpec, Row, Runner
from .config import (
    CacheConfig,
    EngineConfig,
    ExecutionConfig,
    ExitConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from .engine import Engine
from .errors import (
    CheckpointError,
    ConfigError,
    DeviceLost,
    EngineClosed,
    IllegalTransition,
    LogError,
    RequestRefused,
    RltError,
    WorkloadError,
)
from .log import EventLog
from .outputs import RequestOutput
from .params import SamplingParams
from .states import FinishReason, Operation, Outcome, RequestStatus, WorkKey

__all__ = [
    "AsyncEngine",
    "Batch",
    "BatchResult",
    "CacheConfig",
    "CheckpointError",
    "ConfigError",
    "DeviceLost",
    "Engine",
    "EngineClosed",
    "EngineConfig",
    "EventLog",
    "ExecutionConfig",
    "ExitConfig",
    "FinishReason",
    "IllegalTransition",
    "LogError",
    "ModelFacts",
    "Operation",
    "Outcome",
    "RequestOutput",
    "RequestRefused",
    "RequestSpec",
    "RequestStatus",
    "RltError",
    "Row",
    "Runner",
    "SamplingParams",
    "SchedulerConfig",
    "SpeculativeConfig",
    "WorkKey",
    "WorkloadError",
]
