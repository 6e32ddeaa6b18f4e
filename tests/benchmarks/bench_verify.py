"""How fast the auditor reads: every invariant over a long SQLite log, in a new process."""

import json
import subprocess
import sys
from pathlib import Path

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


def tables(
    folder: Path, *, rows: int = 256, outputs: int = 160, repeats: int = 5
) -> dict[str, str]:
    """Every block of this file."""
    path = folder / "verify.db"
    with EventLog.open(path) as log:
        run(log, rows=rows, outputs=outputs)
    reports = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True
        )
        reports.append(json.loads(done.stdout))
    (verdict, events), *others = {(verdict, events) for verdict, events, _, _ in reports}
    assert not others, "every reading gives the same"
    seconds = median(seconds for _, _, seconds, _ in reports)
    peak = max(peak for *_, peak in reports)
    size = path.stat().st_size
    row = [
        f"{events:,}", f"{size / 1e6:.0f} MB ({size / events:.0f} B/event)", verdict,
        f"{seconds:.2f} s", f"{events / seconds / 1e3:,.0f} k", f"{peak:.0f} MB",
    ]  # fmt: skip
    head = ["events", "file", "verdict", "time", "events/s", "peak memory"]
    return {"verify": table(head, [row], numbers=[0, 3, 4, 5])}
