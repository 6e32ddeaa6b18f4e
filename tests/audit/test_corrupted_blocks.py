"""S9: blocks, positions and state rows that do not add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from checking import assert_first
from reseal import Event, Tampered

import audit


def test_s9_finds_a_block_with_two_owners(tampered: Tampered) -> None:
    first, second = tampered.all("admit")[:2]
    second.tell(take=[first.data["take"][0], *second.data["take"][1:]])
    finding = assert_first(tampered, "S9", second)
    assert "takes block 0" in finding.message


def test_s9_finds_a_block_outside_the_pool(tampered: Tampered) -> None:
    admit = tampered.all("admit")[0]
    admit.tell(take=[*admit.data["take"][:-1], 60])
    assert_first(tampered, "S9", admit)


def test_s9_finds_a_block_that_a_ticket_in_flight_can_still_touch(tampered: Tampered) -> None:
    """The last batch of `c` retires only after its blocks went to the next request."""
    retired = tampered.all("retire", lambda e: e.ref == 2)[0]
    batch = next(e for e in reversed(tampered.all("retire_batch")) if e.seq < retired.seq)
    admit = tampered.all("admit", lambda e: e.ref == 5)[0]
    tampered.drop(batch)
    tampered.insert_after(admit, batch)
    batch.step = admit.step
    finding = assert_first(tampered, "S9", retired)
    assert f"ticket {batch.ticket} can still touch" in finding.message


def test_s9_finds_a_block_that_is_dropped_by_somebody_else(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda e: e.ref == 1)[0]
    retire.tell(drop=[0, *retire.data["drop"][1:]])
    assert_first(tampered, "S9", retire)


def test_s9_finds_a_block_that_is_not_given_back(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda e: e.ref == 0)[0]
    retire.tell(drop=retire.data["drop"][4:])
    finding = assert_first(tampered, "S9", retire)
    assert finding.evidence["recounted"] == 4


def test_s9_finds_an_event_with_a_wrong_number_of_blocks(tampered: Tampered) -> None:
    select = tampered.selects("DECODE_RECURRENT")[0]
    select.blocks -= 4
    finding = assert_first(tampered, "S9", select)
    assert (finding.evidence["recorded"], finding.evidence["recounted"]) == (12, 16)


def test_s9_finds_an_event_that_tells_no_number_of_blocks(tampered: Tampered) -> None:
    select = tampered.selects("DECODE_CODA")[0]
    select.blocks = None
    assert_first(tampered, "S9", select)


def test_s9_finds_a_reservation_that_is_too_small(tampered: Tampered) -> None:
    admit = tampered.all("admit")[0]
    admit.tell(take=admit.data["take"][:-4])
    later = [e for e in tampered.events if e.ref == admit.ref and e.seq >= admit.seq]
    for event in later[:-1]:
        event.blocks -= 4
    later[-1].tell(drop=later[-1].data["drop"][:-4])
    finding = assert_first(tampered, "S9", admit)
    assert (finding.evidence["blocks"], finding.evidence["needed"]) == (12, 16)


def test_s9_finds_a_need_that_is_not_the_requests(tampered: Tampered) -> None:
    admit = tampered.all("admit")[0]
    admit.tell(need=12)
    assert_first(tampered, "S9", admit)


def test_s9_finds_a_list_of_blocks_that_leaves_a_plane_short(tampered: Tampered) -> None:
    admit = tampered.all("admit")[1]
    admit.tell(take=admit.data["take"][:-1])
    assert_first(tampered, "S9", admit)


@pytest.mark.parametrize("row", [0, 3, None])
def test_s9_finds_a_state_row_that_is_not_free(tampered: Tampered, row: int | None) -> None:
    admit = tampered.all("admit")[1]
    admit.tell(state_row=row)
    assert_first(tampered, "S9", admit)


@pytest.mark.parametrize("column", ["blocks_free", "blocks_prefix_only", "host_blocks"])
def test_s9_finds_a_step_that_tells_other_numbers_of_blocks(
    tampered: Tampered, column: str
) -> None:
    step = tampered.steps[5]
    setattr(step, column, getattr(step, column) + 1)
    finding = assert_first(tampered, "S9", sealed=False)
    assert finding.evidence["column"] == column
    assert finding.step == step.step


# ---- blocks that are shared, given up and taken again --------------------------------------------

LogWith = Callable[..., Tampered]


@pytest.mark.parametrize("trigger", ["publish", "evict", "offload", "rewind", "resume", "grow"])
def test_a_sealed_copy_of_a_run_with_such_events_is_clean(log_with: LogWith, trigger: str) -> None:
    assert audit.verify(log_with(trigger).seal()).ok


def _sharing(log: Tampered) -> Event:
    return next(event for event in log.all("admit") if event.data.get("share"))


def test_s9_finds_a_shared_block_that_the_prefix_cache_does_not_keep(log_with: LogWith) -> None:
    log = log_with("publish", "evict")
    admit = _sharing(log)
    data = admit.data
    admit.tell(
        share=[data["take"][0], *data["share"][1:]], take=[data["share"][0], *data["take"][1:]]
    )
    finding = assert_first(log, "S9", admit)
    assert "the prefix cache does not keep" in finding.message


def test_s9_finds_a_block_that_is_published_by_somebody_else(log_with: LogWith) -> None:
    log = log_with("publish", "evict")
    publish = log.all("publish")[0]
    publish.tell(publish=[log.config["cache"]["num_blocks"] - 1, *publish.data["publish"][1:]])
    assert_first(log, "S9", publish)


def test_s9_finds_a_block_that_is_published_twice(log_with: LogWith) -> None:
    log = log_with("publish", "evict")
    assert_first(log, "S9", log.duplicate(log.all("publish")[0]))


def test_s9_finds_a_block_that_is_evicted_twice(log_with: LogWith) -> None:
    log = log_with("publish", "evict")
    assert_first(log, "S9", log.duplicate(log.all("evict")[0]))


def test_s9_finds_a_block_that_was_taken_from_the_prefix_cache(log_with: LogWith) -> None:
    log = log_with("publish", "evict")
    evict = log.all("evict")[0]
    log.drop(evict)
    finding = assert_first(log, "S9")
    assert "the prefix cache keeps" in finding.message


@pytest.mark.parametrize("trigger", ["offload", "rewind"])
def test_s9_finds_a_victim_that_keeps_some_of_its_blocks(log_with: LogWith, trigger: str) -> None:
    log = log_with(trigger)
    victim = next(event for event in log.all(trigger) if event.data["drop"])
    planes = log.model["planes"]
    victim.tell(drop=victim.data["drop"][planes:])
    assert_first(log, "S9", victim)


def test_s9_finds_more_blocks_on_the_host_than_it_may_hold(log_with: LogWith) -> None:
    log = log_with("offload")
    log.config["cache"]["host_snapshot_blocks"] = 1
    log.all("open")[0].tell(config=log.config)
    assert_first(log, "S9", log.all("offload")[0])
