"""However the demo model is scheduled, seeded requests get the same tokens and exit depths.

A few sets of the twenty that `python -m equivalence` runs (see there), each under one schedule,
with every pool, one by one and together.
"""

import pytest
import torch
from equivalence.comparison import compare_set
from equivalence.ways import POOLS, SCHEDULES, ways

from runner.loading import load_model

SETS = dict(enumerate(SCHEDULES, start=100))
CASES = [(seed, "last_exited") for seed in SETS] + [(101, "shared"), (104, "shared")]


def chosen_ways(schedule, layout):
    """The plainest way, and all of one schedule."""
    every = ways(layout)
    return [every[0], *(way for way in every[1:] if (way.mode, way.prefill) == schedule)]


def preempting_pools(layout):
    return [pool for pool in POOLS if layout == "last_exited" or pool != "prefix pages"]


@pytest.mark.parametrize(("seed", "layout"), CASES)
def test_every_pool_and_company_gives_what_the_plainest_way_gives(demo, seed, layout):
    tally = compare_set(demo, seed, layout, chosen_ways(SETS[seed], layout))
    assert tally.completions >= 9 * 9
    for pool in preempting_pools(layout):
        done = tally.preemptions[pool]
        for trigger in POOLS[pool]:  # `offload_resident` is an offload as well
            assert sum(n for name, n in done.items() if name.startswith(trigger)), (pool, done)
    if SETS[seed][0] == "mixed":
        assert tally.batches["DECODE_RECURRENT+PROMPT_RECURRENT"]
        assert tally.batches["DECODE_PRELUDE+PROMPT_PRELUDE"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("layout", ["last_exited", "shared"])
def test_every_way_gives_the_same_on_a_cuda_device(layout):
    loaded = load_model("demo", "cuda", "float32")
    tally = compare_set(loaded, 0, layout)
    assert tally.differences <= len(tally.near_ties)
