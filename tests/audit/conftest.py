"""A real run on SimRunner, in a file of each test's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import preempting_runs
import pytest
from random_runs import random_run, seed_with
from real_runs import run_to_file
from recovery.scenes import whole_run
from reseal import Tampered

from rlt_fsm import EventLog


@pytest.fixture(scope="session")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clean log; copy it before changing it."""
    path = tmp_path_factory.mktemp("real") / "run.db"
    run_to_file(path)
    return path


@pytest.fixture(scope="session")
def log_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tampered]:
    """A copy of a random run that has events of the given kinds, open to be corrupted."""
    folder = tmp_path_factory.mktemp("random")
    made: dict[tuple[str, ...], Path] = {}
    copies = count()

    def make(*kinds: str) -> Tampered:
        if kinds not in made:
            made[kinds] = folder / f"{len(made)}.db"
            with EventLog.open(made[kinds]) as log:
                random_run(seed_with(*kinds), whole_scheduler=True, log=log)
        return Tampered(Path(shutil.copy(made[kinds], folder / f"copy-{next(copies)}.db")))

    return make


@pytest.fixture
def preempting(tmp_path: Path) -> Callable[..., Tampered]:
    """A run of `preempting_runs`, by its name, open to be corrupted."""

    def make(name: str, **options: int) -> Tampered:
        path = tmp_path / f"{name}.db"
        getattr(preempting_runs, name)(path, **options)
        return Tampered(path)

    return make


@pytest.fixture
def tampered(real_log: Path, tmp_path: Path) -> Tampered:
    """A copy of the clean log, open to be corrupted."""
    return Tampered(Path(shutil.copy(real_log, tmp_path / "tampered.db")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where archives go."""
    into = tmp_path / "archives"
    into.mkdir()
    return into


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A log of two runs."""
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        whole_run("preempting", log)
        whole_run("late results", log)
    return path
