"""What the auditor's ledger counts as it goes is what its blocks add up to."""

from random import Random

import pytest

from audit.block_ledger import BlockLedger
from audit.facts import CacheFacts

BLOCKS, REQUESTS = 12, 4


@pytest.mark.parametrize("seed", range(20))
def test_blocks_that_only_the_prefix_cache_keeps_are_counted_whatever_is_done_to_them(
    seed: int,
) -> None:
    random, ledger = Random(seed), BlockLedger(REQUESTS, 1, CacheFacts(num_blocks=BLOCKS))
    for _ in range(200):
        ref = random.randrange(REQUESTS)
        blocks = [random.randrange(BLOCKS) for _ in range(random.randint(1, 4))]
        match random.choice(["take", "share", "drop", "publish", "evict", "hold", "keep", "lose"]):
            case "evict":
                ledger.evict(blocks)
            case "hold":
                ledger.hold(ref, [block for block in set(blocks) if block not in ledger.owned[ref]])
            case "keep":
                ledger.keep_prefixes(blocks)
            case "lose" if random.random() < 0.2:
                ledger.lose_prefixes()
            case "take" | "share" | "drop" | "publish" as change:
                getattr(ledger, change)(ref, blocks)
        referenced = set().union(*ledger.owned)
        assert ledger.referenced == len(referenced)
        assert ledger.prefix_only == len(set(ledger.prefix_blocks) - referenced)
        assert ledger.free == BLOCKS - len(referenced | set(ledger.prefix_blocks))
