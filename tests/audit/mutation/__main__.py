"""The mutation run: `python -m tests.audit.mutation [--corruptions N] [--clean A:B]`.

N random single corruptions of real logs of each scene, and how many are reported within one step of
the damage, the survivors one by one; then random runs of seeds A to B, none of which may have a
finding. Exit status 1 if fewer than 95 % are reported there, or a clean run has one.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from mutations import SCENES, corrupted  # noqa: E402  # the path comes first
from random_runs import random_run  # noqa: E402  # the same

import audit  # noqa: E402  # the same
from runner.terminal import log_to_stderr  # noqa: E402  # the same

GOAL = 0.95


def corruptions(scene: str, seeds: range) -> tuple[Counter[str], list[str]]:
    """How the corruptions of a scene were reported, and those that were not, or far away."""
    counts: Counter[str] = Counter()
    told: list[str] = []
    for seed in seeds:
        with TemporaryDirectory() as folder:
            case = corrupted(scene, seed, Path(folder))
            report = audit.verify(case.path)
        if not report.findings:
            how, what = "survives", ""
        else:
            first = report.findings[0]
            near = abs(first.step - case.step) <= 1
            how = "reported" if near else "far away"
            what = f"; {first.invariant} in step {first.step}: {first.message}"
        counts[how] += 1
        if how != "reported":
            told.append(f"{scene} {seed}, {how}: step {case.step}, {case.what}{what}")
    return counts, told


def clean_runs(seeds: range) -> tuple[int, list[str]]:
    """(how many seeds draw a configuration that is not refused, the findings of their runs)."""
    runs, found = 0, []
    for seed in seeds:
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        runs += 1
        report = audit.verify(log)
        if not report.ok:
            found.append(f"seed {seed}: {report.verdict}, {report.findings[:1]}")
    return runs, found


def say(head: str, *lines: str) -> None:
    """A line, and what belongs to it."""
    sys.stdout.write("\n  ".join([head, *lines]) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corruptions", type=int, default=60, metavar="N", help="in each scene")
    parser.add_argument("--clean", default="0:0", metavar="A:B", help="seeds of clean runs")
    options = parser.parse_args()
    log_to_stderr("critical")  # devices fail on purpose
    total: Counter[str] = Counter()
    for scene in SCENES:
        counts, told = corruptions(scene, range(options.corruptions))
        total += counts
        say(f"{scene:<11} {dict(counts)}", *told)
    first, last = map(int, options.clean.split(":"))
    runs, found = clean_runs(range(first, last))
    say(f"{runs:,} clean runs: {len(found)} with a finding", *found)
    share = total["reported"] / max(1, total.total())
    say(f"{total.total()} corruptions: {share:.1%} reported within one step")
    return int((total.total() > 0 and share < GOAL) or bool(found))


if __name__ == "__main__":
    sys.exit(main())
