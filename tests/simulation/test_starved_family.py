"""Who is kept from running for long is preempted for nobody twice in vain, whatever keeps it."""

from functools import partial

import pytest
from judging import judge
from starved_family import WAYS, of_way

from runner.simulate import simulate


@pytest.mark.parametrize("way", WAYS)
def test_requests_that_wait_long_for_their_first_row_break_no_invariant(way):
    result = simulate(range(40), judge, make=partial(of_way, way))
    assert result.failed is None
    assert result.preemptions > 0
    assert bool(result.triggers.get("rewind")) == (way == "rewinds")
