"""The architectures that can be read, by the `model_type` of their config.json."""

from pathlib import Path

from . import config_rules as rules
from . import huginn_config, ouro_config
from .huginn import HuginnModel
from .huginn_config import HuginnConfig
from .ouro import OuroModel
from .ouro_config import OuroConfig

ModelConfig = OuroConfig | HuginnConfig
Network = OuroModel | HuginnModel

_CONFIGS: dict[str, type[ModelConfig]] = {
    ouro_config.MODEL_TYPE: OuroConfig,
    huginn_config.MODEL_TYPE: HuginnConfig,
}


def read_config(folder: Path) -> ModelConfig:
    """The configuration in a folder's config.json.

    Raises:
        CheckpointError: unreadable, another kind of model, or a value that breaks its rule.
    """
    data = rules.config_mapping(folder)
    model_type = data.get("model_type")
    if not isinstance(model_type, str) or model_type not in _CONFIGS:
        raise rules.broken("model_type", model_type, f"must be one of {', '.join(_CONFIGS)}")
    return _CONFIGS[model_type].from_json(data)


def make_network(config: ModelConfig) -> Network:
    """The network of a configuration, on torch's current device, its weights not yet read."""
    return OuroModel(config) if isinstance(config, OuroConfig) else HuginnModel(config)
