"""Runners and the one-call facade. Importing this package is cheap: torch loads on first use.

Only names live here; each is imported from its home when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .llm import LLM
    from .sim import SimRunner
    from .torch_runner import TorchRunner

__all__ = ["LLM", "SimRunner", "TorchRunner"]

_HOMES = {"LLM": ".llm", "SimRunner": ".sim", "TorchRunner": ".torch_runner"}


def __getattr__(name: str) -> object:
    """Import a public name from its home, once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
