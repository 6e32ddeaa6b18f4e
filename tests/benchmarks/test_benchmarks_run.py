"""The benchmarks still run. What they measure is nobody's pass or fail."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = ("machine", "engine", "engine-fit", "verdicts", "preemption", "verify", "demo")


def test_every_benchmark_makes_its_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for block in BLOCKS:
        assert f"{block}\n\n" in done.stdout
