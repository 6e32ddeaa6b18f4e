"""Measure, and print or write the tables of docs/performance.md and docs/demo-model.md.

python -m tests.benchmarks            prints them
python -m tests.benchmarks --write    puts them between `<!-- measured: NAME -->` and `<!-- end -->`
python -m tests.benchmarks --quick    a few seconds of everything; the figures mean nothing
"""

import argparse
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from docs.generate.markdown import fill

from . import bench_demo, bench_engine, bench_preemption, bench_verify

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "demo-model.md")
PARTS = ("engine", "preemption", "verify", "demo")


def machine() -> dict[str, str]:
    """The machine in general words."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "sqlalchemy", "msgspec"))
    text = (
        f"{os.cpu_count()} vCPU ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, {packages}."
    )
    return {"machine": text}


def main(arguments: list[str]) -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure these parts")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument("--quick", action="store_true", help="show that it runs")
    options = parser.parse_args(arguments)
    parts = options.only or PARTS
    blocks = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "engine" in parts:
            size = bench_engine.QUICK if options.quick else bench_engine.Size()
            blocks |= bench_engine.tables(folder, size)
        if "preemption" in parts:
            tight = bench_preemption.QUICK if options.quick else bench_preemption.Size()
            blocks |= bench_preemption.tables(tight)
        if "verify" in parts:
            small = {"row_outputs": 512, "repeats": 1} if options.quick else {}
            blocks |= bench_verify.tables(folder, **small)
        if "demo" in parts:
            small = {"prompts": 4, "repeats": 1} if options.quick else {}
            blocks |= bench_demo.tables(**small)
    for block, text in blocks.items():
        sys.stdout.write(f"{block}\n\n{text}\n\n")
    if options.write:
        for page in PAGES:
            makers = {block: (lambda text=text: text) for block, text in blocks.items()}
            filled = fill(page.read_text(encoding="utf-8"), makers, kind="measured")
            page.write_text(filled, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
