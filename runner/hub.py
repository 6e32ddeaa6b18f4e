"""Where a model's folder is: the demo's, a local one, or a hub repository in the hub's own cache.

Finding and fetching only. What is fetched is data, never code, and nothing is read here.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from rlt_fsm.arguments import path_text
from rlt_fsm.errors import CheckpointError, ConfigError
from rlt_fsm.wording import did_you_mean

DEMO: Final = "demo"
SIM: Final = "sim"  # found by `rlt-fsm run` itself: it has no folder
DEMO_FOLDER: Final = Path(__file__).parent / "demo" / "checkpoint"
DESCRIPTIONS: Final = ("*.json",)  # enough to tell what a model is
EVERYTHING: Final = ("*.safetensors", "*.json")  # all that is ever fetched
_WHAT_TO_GIVE: Final = (
    "give 'demo', a folder with config.json and weights, or a hub id such as 'owner/name'"
)


def find_model(model: str | Path, *, patterns: Sequence[str] = EVERYTHING) -> Path:
    """The folder of a model; of a hub id, files of `patterns` are fetched where they are not yet.

    `huggingface_hub` shows its progress on stderr, if that is a terminal.

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
        instead = did_you_mean(str(model), [DEMO, SIM]) or _WHAT_TO_GIVE
        raise CheckpointError(f"{model} is not a folder: {instead}")
    if find_spec("huggingface_hub") is None:
        raise CheckpointError(
            f"{model!r} is not a local folder, and fetching it needs huggingface_hub: install "
            "rlt-fsm[hub], or download the model and give its folder"
        )
    return _fetch(model, patterns)


def is_local(model: str | Path) -> bool:
    """Whether a model's files are on this machine without asking a hub."""
    return model == DEMO or Path(model).expanduser().is_dir()


def name_of(model: str | Path, folder: Path) -> str:
    """What the log calls a model: as it was asked for, or a local folder's own name."""
    is_named = model == DEMO or not Path(model).expanduser().is_dir()
    return str(model) if is_named else folder.name


def _is_hub_id(model: str) -> bool:
    owner, slash, name = model.partition("/")
    return bool(owner and slash and name) and "/" not in name and owner not in {".", "..", "~"}


def _fetch(model: str, patterns: Sequence[str]) -> Path:
    hub = import_module("huggingface_hub")
    try:
        with _bars_where_watched(import_module("huggingface_hub.utils")):
            return Path(hub.snapshot_download(model, allow_patterns=list(patterns)))
    except Exception as error:  # its errors share no base with anything but this
        raise CheckpointError(f"{model!r} is not a local folder, and {_why(error)}") from error


@contextmanager
def _bars_where_watched(utils: ModuleType) -> Iterator[None]:
    """The library shows bars in files and pipes as well: not here."""
    if sys.stderr.isatty() or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _why(error: Exception) -> str:
    """What kept a repository from being fetched, and what to do; a hub's own text is a page."""
    match type(error).__name__:
        case "GatedRepoError":
            return "the hub wants its terms accepted first: accept them, log in, and try again"
        case "RepositoryNotFoundError" | "HFValidationError":
            return "the hub has no such repository: check the name, or log in if it is private"
        case "LocalEntryNotFoundError" | "OfflineModeIsEnabled" | "ConnectionError":
            return (
                "the hub cannot be reached from here: download the model where it can, and give "
                "its folder"
            )
        case name:
            return (
                f"could not be fetched ({name}): check the name and the network, or give a local "
                "folder"
            )
