"""Which code this is: the distribution's version and, in a checkout, the git revision."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def engine_version() -> str:
    """The installed version of rlt-fsm."""
    try:
        return version("rlt-fsm")
    except PackageNotFoundError:
        return "0+source"


@cache
def revision() -> str:
    """The git revision of the checkout this package lies in, `+dirty` appended; else empty."""
    folder = Path(__file__).resolve().parent
    if not (folder.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603  # a fixed command line
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
