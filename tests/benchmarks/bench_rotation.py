"""What a rotation beside it costs an engine: its throughput with and without, and all that waits.

    python -m tests.benchmarks.bench_rotation

The load is the soak's, asynchronous, the log is a file on the disk. The rotation is never idle: it
begins a turn as soon as it has ended one. It is nicer than the engine by NICE, as a service should
be. CPU time is the engine's process's alone, and tells what is not a matter of free cores.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import table
from rlt_fsm import Engine, EventLog
from tests.soak.load import CONFIG, Load, sim

from .bench_runs import interleaved, median

KEEP_EVENTS = 10_000
NICE = 10


class Served(NamedTuple):
    """A run of so many events; `longest_s` is the longest step's time."""

    events_per_s: float
    cpu_us_per_event: float
    longest_s: float


@contextmanager
def rotating(path: Path) -> Iterator[None]:
    """A rotation in a process of its own, which waits for the log already."""
    into = path.with_name("archives")
    into.mkdir()
    words = ["archive", str(path), "--into", str(into), "--every", "0.01"]
    words += ["--keep-events", str(KEEP_EVENTS)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from audit.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.nice(NICE),  # noqa: PLW1509  # there are no threads here
    )
    while not path.with_name(f"{path.name}-archiving").exists():
        time.sleep(0.01)
    try:
        yield
    finally:
        told, _ = process.communicate()
        assert process.returncode == 0, told


def serve(path: Path, events: int) -> Served:
    """Serve the soak's load until so many events are recorded."""
    longest_s, started, cpu_started = 0.0, time.perf_counter(), time.process_time()
    with EventLog.open(path) as log, Engine(sim(), CONFIG, log) as engine:
        load = Load(engine, 0)
        while engine.state.seq < events:
            began = time.perf_counter()
            load.step()
            longest_s = max(longest_s, time.perf_counter() - began)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Served(events / seconds, 1e6 * cpu_seconds / events, longest_s)


def measured(events: int, repeats: int) -> str:
    """The table."""

    def measure(kind: str) -> Served:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.db"
            if kind == "without":
                return serve(path, events)
            with rotating(path):
                return serve(path, events)

    results = interleaved([("without",), ("with",)], measure, repeats)
    rows = []
    for kind in ("without", "with"):
        speed, cost, longest = (
            median(served[column] for served in results[(kind,)]) for column in range(3)
        )
        cells = (f"{speed / 1e3:.1f} k", f"{cost:.1f} µs", f"{1e3 * longest:.0f} ms")
        rows.append([f"{kind} a rotation beside it", *cells])
    head = ["engine", "events/s", "CPU time of an event", "longest step"]
    return table(head, rows, numbers=[1, 2, 3])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000, help="of each run")
    parser.add_argument("--repeats", type=int, default=5, help="of each, interleaved")
    options = parser.parse_args()
    sys.stdout.write(measured(options.events, options.repeats) + "\n")


if __name__ == "__main__":
    main()
