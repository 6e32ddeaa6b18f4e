"""How fast the auditor reads: every invariant over long SQLite logs, each in a new process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import table
from rlt_fsm import EventLog

from .bench_runs import median, run

_CHILD = r"""
import json, re, sys
import audit
report = audit.verify(sys.argv[1])
peak_kib = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]
print(json.dumps([report.verdict, report.events, report.seconds, int(peak_kib) / 1024]))
"""


class Load(NamedTuple):
    """A log to be read: as wide as that, asynchronously or not, with loops left early or not."""

    name: str
    rows: int
    is_async: bool
    exit_threshold: float


LOADS = (
    Load("synchronous", 256, is_async=False, exit_threshold=1.0),
    Load("asynchronous", 256, is_async=True, exit_threshold=1.0),
    Load("asynchronous, early exits", 64, is_async=True, exit_threshold=0.5),
)
ROW_OUTPUTS = 160 * 256  # about half a million events, however wide


def tables(
    folder: Path, *, loads: Sequence[Load] = LOADS, row_outputs: int = ROW_OUTPUTS, repeats: int = 5
) -> dict[str, str]:
    """Every block of this file."""
    paths = {load: folder / f"verify{place}.db" for place, load in enumerate(loads)}
    for load, path in paths.items():
        with EventLog.open(path) as log:
            run(
                log,
                rows=load.rows,
                outputs=row_outputs // load.rows,
                is_async=load.is_async,
                exit_threshold=load.exit_threshold,
            )
    reports: dict[Load, list[Reading]] = {load: [] for load in loads}
    for _ in range(repeats):
        for load, path in paths.items():
            reports[load].append(_read(path))
    rows = [_row(load, paths[load], own) for load, own in reports.items()]
    head = ["run", "rows", "events", "file", "verdict", "time", "events/s", "peak memory"]
    return {"verify": table(head, rows, numbers=[1, 2, 5, 6, 7])}


Reading = tuple[str, int, float, float]  # verdict, events, seconds, peak MiB


def _read(path: Path) -> Reading:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True
    )
    verdict, events, seconds, peak = json.loads(done.stdout)
    return verdict, events, seconds, peak


def _row(load: Load, path: Path, reports: list[Reading]) -> list[str]:
    (verdict, events), *others = {(verdict, events) for verdict, events, _, _ in reports}
    assert not others, "every reading gives the same"
    seconds = median(seconds for _, _, seconds, _ in reports)
    peak = max(peak for *_, peak in reports)
    size = path.stat().st_size
    return [
        load.name, str(load.rows), f"{events:,}",
        f"{size / 1e6:.0f} MB ({size / events:.0f} B/event)", verdict,
        f"{seconds:.2f} s", f"{events / seconds / 1e3:,.0f} k", f"{peak:.0f} MB",
    ]  # fmt: skip
