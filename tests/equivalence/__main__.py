"""Every set of requests in every way, for people: about ten minutes on a CPU.

    PYTHONPATH=.:tests python -m equivalence --sets 0:20

Prints a line per set and the sums; exit status 1 at the first difference that is not proven.
"""

import argparse
import sys

import torch
from equivalence.comparison import Tally, compare_set
from equivalence.proofs import Unproven
from equivalence.ways import POOLS

from runner.loading import load_model

LAYOUTS = ("last_exited", "shared")


def main() -> int:
    """Compare, print, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m equivalence", description=__doc__)
    parser.add_argument("--sets", default="0:20", help="seeds, first:end (default 0:20)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--layout", choices=LAYOUTS, help="one layout alone (default both)")
    options = parser.parse_args()
    first, _, end = options.sets.partition(":")
    torch.set_num_threads(1)
    loaded = load_model("demo", options.device, "float32")
    for layout in LAYOUTS if options.layout is None else (options.layout,):
        total = Tally()
        for seed in range(int(first), int(end)):
            try:
                tally = compare_set(loaded, seed, layout)
            except Unproven as error:
                _say(f"{layout} FAILED: {error}")
                return 1
            _say(f"{layout} set {seed}: {_line(tally)}")
            total.add(tally)
        _say(f"{layout} in all: {_line(total)}")
        for near_tie in total.near_ties:
            _say(f"  proven: {near_tie}")
        for pool in POOLS:
            _say(f"  {pool}: {dict(total.preemptions.get(pool, {}))}")
        _say(f"  batches: {dict(total.batches)}")
    return 0


def _line(tally: Tally) -> str:
    return (
        f"{tally.runs} runs, {tally.completions} completions of {tally.outputs} outputs compared, "
        f"{tally.differences} differ, {len(tally.near_ties)} near-ties proven, log-probabilities "
        f"within {tally.largest_logprob_difference:.1e}, {tally.events} events audited clean, "
        f"{tally.seconds:.1f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
