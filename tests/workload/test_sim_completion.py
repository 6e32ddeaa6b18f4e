"""When the sim's results come back: late, out of order, by seed alone, and never lost."""

import pytest

from rlt_fsm.batch import BatchResult
from rlt_fsm.workload import Completion
from runner.sim_completion import LateResults


def polled(completion, tickets=12):
    """What each look brings when one batch is submitted before each, and then none."""
    late = LateResults(completion)
    looks = []
    for ticket in range(tickets + 20):
        if ticket < tickets:
            late.add(BatchResult(ticket))
        looks.append([result.ticket for result in late.poll()])
    return looks


def test_without_rules_every_result_is_one_turn_late():
    assert polled(None)[:13] == [[], *[[ticket] for ticket in range(12)]]


def test_without_delay_a_result_comes_in_its_own_turn():
    assert polled(Completion())[:12] == [[ticket] for ticket in range(12)]


@pytest.mark.parametrize("order", ["fifo", "random"])
def test_every_result_comes_once_and_at_most_max_delay_turns_late(order):
    looks = polled(Completion(order=order, seed=3, max_delay=4))
    came = {ticket: turn for turn, tickets in enumerate(looks) for ticket in tickets}
    assert sorted(came) == list(range(12))
    assert all(0 <= came[ticket] - ticket <= 4 for ticket in came)


def test_fifo_keeps_the_order_of_submission_and_random_does_not():
    flat = {
        order: [t for look in polled(Completion(order=order, seed=3, max_delay=4)) for t in look]
        for order in ("fifo", "random")
    }
    assert flat["fifo"] == sorted(flat["fifo"])
    assert flat["random"] != sorted(flat["random"])


def test_the_seed_alone_decides():
    rules = Completion(order="random", seed=5, max_delay=3)
    assert polled(rules) == polled(rules)
    assert polled(rules) != polled(Completion(order="random", seed=6, max_delay=3))


def test_waiting_lets_turns_pass_until_something_comes():
    late = LateResults(Completion(seed=1, max_delay=50))
    late.add(BatchResult(0))
    assert [result.ticket for result in late.collect()] == [0]
    with pytest.raises(AssertionError, match="for ever"):
        late.collect()


def test_the_oldest_batch_in_flight_can_be_made_to_fail():
    late = LateResults()
    assert not late.fail_oldest("device-error")
    late.add(BatchResult(0, token_ids=[5]))
    late.add(BatchResult(1))
    assert late.fail_oldest("device-error")
    assert [(r.ticket, r.error) for _ in range(3) for r in late.poll()] == [
        (0, "device-error"),
        (1, None),
    ]
