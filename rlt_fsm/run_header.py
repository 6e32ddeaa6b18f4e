"""The header of a new run: what stands in the log's `run` view before anything has happened."""

import msgspec

from . import config as configs
from .batch import ModelFacts
from .clock import wall_time
from .config import EngineConfig
from .log.port import RunHeader
from .log.schema import SCHEMA_VERSION
from .version import engine_version, revision


def new_header(model: ModelFacts, config: EngineConfig, workload: str | None) -> RunHeader:
    """The header of a run that begins now."""
    return RunHeader(
        started_at=wall_time(),
        schema_version=SCHEMA_VERSION,
        engine_version=engine_version(),
        revision=revision(),
        config=configs.to_json(config),
        model=msgspec.json.encode(model).decode(),
        workload=workload,
    )
