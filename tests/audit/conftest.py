"""A real run on SimRunner, in a file of each test's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from real_runs import run_to_file
from reseal import Tampered


@pytest.fixture(scope="session")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clean log; copy it before changing it."""
    path = tmp_path_factory.mktemp("real") / "run.db"
    run_to_file(path)
    return path


@pytest.fixture
def tampered(real_log: Path, tmp_path: Path) -> Tampered:
    """A copy of the clean log, open to be corrupted."""
    return Tampered(Path(shutil.copy(real_log, tmp_path / "tampered.db")))
