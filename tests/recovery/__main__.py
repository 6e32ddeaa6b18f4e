"""Ends serving processes at random moments and compares what their requests get in the end.

    PYTHONPATH=.:tests python -m recovery --seeds 0:200 --seconds 600

Every fourth victim is the demo model (fp32, sampling), the others are sims in the scenes of
`scenes.py`. They are killed, find their disk full or their log locked. Prints the sums; exit status
1 at the first difference.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import structlog
from recovery.demo import demo_victims
from recovery.killing import Ended, end_and_recover, sim_victim


def main() -> int:
    """Kill, compare, print, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m recovery", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:end (default 0:200)")
    parser.add_argument("--seconds", type=float, default=600, help="stop after (default 600)")
    options = parser.parse_args()
    first, _, end = options.seeds.partition(":")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    demo_victim = demo_victims()
    started, done = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(first), int(end)):
            if time.monotonic() - started > options.seconds:
                break
            victim = demo_victim(seed) if seed % 4 == 3 else sim_victim(seed)
            try:
                done.append(end_and_recover(Path(folder), victim, seed))
            except AssertionError as error:
                _say(f"seed {seed} FAILED: {error}")
                return 1
            for path in Path(folder).iterdir():
                path.unlink()
    _say(_sums(done, time.monotonic() - started))
    return 0


def _sums(done: list[Ended], seconds: float) -> str:
    ends = Counter(end for one in done for end in one.ends)
    told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    victims = ", ".join(f"{n} {name}" for name, n in Counter(one.name for one in done).items())
    return (
        f"{len(done)} victims ({victims}), {ends.total()} lives cut short ({told}), "
        f"{sum(one.in_recovery for one in done)} of them while recovering, "
        f"{sum(one.waited for one in done)} waited for a lock, "
        f"{sum(one.recovered for one in done)} recoveries, "
        f"{sum(one.events for one in done)} events audited clean, {seconds:.0f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
