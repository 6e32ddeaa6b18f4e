"""A pytest plugin: engines whose logs are audited, and digests of workloads that must stay.

Opt in with `-p audit.pytest_plugin`. Fixtures:

- `audited_engine(config=None, runner=None, **options)` gives an engine on a log of its own,
  which is closed and verified when the test is over: a finding fails the test.
- `golden_digest(workload)` runs a workload file on the sim and compares its digest with the one in
  the file that `--rlt-golden FILE` names (or the ini option `rlt_golden`); with
  `--rlt-golden-update` it is written there instead.

A composition root: it may import anything, nothing imports it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

FORMAT: Final = "rlt-golden/1"
DEFAULT_FILE: Final = "rlt-golden.json"
FINDINGS_SHOWN: Final = 5


class Golden(msgspec.Struct):
    """A file of digests by workload file, as paths from the folder of the golden file."""

    format: str = FORMAT
    digests: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("rlt-fsm")
    group.addoption("--rlt-golden", metavar="FILE", help="The file of golden digests.")
    group.addoption(
        "--rlt-golden-update", action="store_true", help="Write golden digests, do not compare."
    )
    parser.addini("rlt_golden", "The file of golden digests.", default=DEFAULT_FILE)


# ---- engines -----------------------------------------------------------------------------------


@pytest.fixture
def audited_engine(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A maker of engines; each is closed and its log verified when the test is over."""
    from rlt_fsm import Engine, EventLog  # noqa: PLC0415  # no engine where none is made
    from rlt_fsm.config import from_mapping  # noqa: PLC0415  # the same
    from runner import SimRunner  # noqa: PLC0415  # the same

    made: list[tuple[Engine, EventLog, Path]] = []

    def make(config: Any = None, runner: Any = None, **options: Any) -> Engine:
        path = tmp_path / f"engine-{len(made) + 1}.db"
        if isinstance(config, Mapping):
            config = from_mapping(config)
        log = EventLog.open(path)
        engine = Engine(SimRunner() if runner is None else runner, config, log, **options)
        made.append((engine, log, path))
        return engine

    yield make
    for engine, log, _ in made:
        engine.close()
        log.close()
    for _, _, path in made:
        _require_clean(path)


def _require_clean(path: Path) -> None:
    import audit  # noqa: PLC0415  # no auditor where no engine is made

    report = audit.verify(path)
    if report.ok:
        return
    lines = [f"{path}: {report.verdict}"]
    lines += [part.why for part in report.runs if part.why is not None]
    lines += [
        f"{finding.invariant} seq {finding.seq} step {finding.step}: {finding.message}"
        for finding in report.findings[:FINDINGS_SHOWN]
    ]
    pytest.fail("\n".join(lines), pytrace=False)


# ---- digests -----------------------------------------------------------------------------------


@pytest.fixture
def golden_digest(request: pytest.FixtureRequest) -> Callable[[str | os.PathLike[str]], str]:
    """What compares a workload's digest with the golden one, and gives it."""
    config = request.config
    name = config.getoption("--rlt-golden") or config.getini("rlt_golden")
    file = config.rootpath / name
    is_update = config.getoption("--rlt-golden-update")
    if is_update and os.environ.get("PYTEST_XDIST_WORKER"):
        raise pytest.UsageError("--rlt-golden-update writes one file: run it without -n")

    def check(workload: str | os.PathLike[str]) -> str:
        path = Path(workload).resolve()
        digest = _digest(path)
        key = Path(os.path.relpath(path, file.resolve().parent)).as_posix()
        golden = _read(file, may_be_missing=is_update)
        if is_update:
            golden.digests[key] = digest
            _write(file, golden)
        elif key not in golden.digests:
            pytest.fail(f"{file} has no digest of {key}: {_how_to_update(name)}", pytrace=False)
        elif digest != golden.digests[key]:
            pytest.fail(
                f"{key} runs otherwise: its digest is {digest}, the golden one is "
                f"{golden.digests[key]}.\nWhat changed: rlt-audit compare --base REV --head . "
                f"--workload {path}\nIf it is meant to: {_how_to_update(name)}",
                pytrace=False,
            )
        return digest

    return check


def _how_to_update(name: str) -> str:
    return f"pytest --rlt-golden {name} --rlt-golden-update"


def _digest(path: Path) -> str:
    from rlt_fsm import EventLog  # noqa: PLC0415  # no engine where none is run
    from rlt_fsm.workload import load  # noqa: PLC0415  # the same
    from runner.simulate_check import run_logged  # noqa: PLC0415  # the same

    with EventLog.memory() as log:
        stop = run_logged(load(path), log, check=True)
        if stop is not None:
            pytest.fail(f"{path}: {stop.message}", pytrace=False)
        (info,) = log.reader().runs()
        assert info.digest is not None, "a closed run has a digest"
        return info.digest


def _read(file: Path, *, may_be_missing: bool) -> Golden:
    if may_be_missing and not file.exists():
        return Golden()
    try:
        golden = msgspec.json.decode(file.read_bytes(), type=Golden)
    except OSError as error:
        raise pytest.UsageError(f"{file}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise pytest.UsageError(f"{file}: no file of golden digests: {error}") from error
    if golden.format != FORMAT:
        raise pytest.UsageError(f"{file}: format is {golden.format!r}, not {FORMAT!r}")
    return golden


def _write(file: Path, golden: Golden) -> None:
    ordered = Golden(digests=dict(sorted(golden.digests.items())))
    text = msgspec.json.format(msgspec.json.encode(ordered), indent=2)
    file.write_bytes(text + b"\n")
