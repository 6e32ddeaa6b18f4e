"""S6 and S7: a corrupted batch, or a corrupted range, is found at its row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from checking import assert_first
from reseal import Tampered

import audit


def test_s6_finds_a_request_that_is_twice_in_a_batch(tampered: Tampered) -> None:
    first = tampered.selects("DECODE_RECURRENT")[1]
    again = tampered.duplicate(first)
    finding = assert_first(tampered, "S6", again)
    assert finding.evidence["rows"] == [1, 1]


def test_s6_finds_a_missing_row(tampered: Tampered) -> None:
    three = next(s for s in tampered.selects("DECODE_RECURRENT") if s.a == 2)
    first = next(s for s in tampered.events if s.ticket == three.ticket)
    tampered.drop(first)
    finding = assert_first(tampered, "S6")
    assert finding.evidence["due"] == 0


def test_s6_finds_a_missing_last_row_when_the_batch_is_submitted(tampered: Tampered) -> None:
    last = next(s for s in tampered.selects("DECODE_RECURRENT") if s.a == 2)
    batch = next(e for e in tampered.all("submit_batch") if e.ticket == last.ticket)
    tampered.drop(last)
    finding = assert_first(tampered, "S6", batch)
    assert (finding.evidence["told"], finding.evidence["counted"]) == (3, 2)


def test_s6_finds_a_row_of_another_ticket(tampered: Tampered) -> None:
    row = next(s for s in tampered.selects("DECODE_CODA") if s.a == 1)
    row.ticket += 1
    assert_first(tampered, "S6")


def test_s6_finds_a_row_of_a_ticket_that_has_run(tampered: Tampered) -> None:
    row = tampered.selects("DECODE_CODA")[0]
    row.ticket -= 1
    finding = assert_first(tampered, "S6", row)
    assert "submitted before" in finding.message


def test_s6_finds_a_batch_that_was_selected_and_never_submitted(tampered: Tampered) -> None:
    batch = tampered.all("submit_batch")[4]
    first = next(e for e in tampered.events if e.ticket == batch.ticket)
    tampered.drop(batch)
    assert_first(tampered, "S6", first)


def test_s6_finds_more_tokens_than_a_batch_may_have(tampered: Tampered) -> None:
    row = next(s for s in tampered.selects("PROMPT_ATOMIC") if s.a == 1)
    row.c += 1
    finding = assert_first(tampered, "S6", row)
    assert finding.evidence["tokens"] == 7


def test_s6_finds_a_prompt_chunk_that_is_too_long(tampered: Tampered) -> None:
    row = tampered.selects("PROMPT_ATOMIC")[0]
    row.c = 5
    finding = assert_first(tampered, "S6", row)
    assert finding.evidence["prefill_chunk_size"] == 4


def test_s6_finds_a_row_without_tokens(tampered: Tampered) -> None:
    row = tampered.selects("DECODE_PRELUDE")[0]
    row.c = 0
    assert_first(tampered, "S6", row)


def test_s6_finds_two_operations_in_one_batch(tampered: Tampered) -> None:
    row = next(s for s in tampered.selects("DECODE_RECURRENT") if s.a == 1)
    row.move = tampered.move("select", work=("QUEUED:DECODE_CODA", "TAKEN:DECODE_CODA"))
    finding = assert_first(tampered, "S6", row)
    assert finding.evidence["works"] == ["DECODE_RECURRENT", "DECODE_CODA"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows", 9), ("tokens", 1), ("works", ["DECODE_CODA"]), ("operation", "CODA")],
)
def test_s6_finds_a_batch_that_tells_something_else_than_its_rows(
    tampered: Tampered, field: str, value: object
) -> None:
    batch = tampered.all("submit_batch")[0]
    batch.tell(**{field: value})
    assert_first(tampered, "S6", batch)


def test_s7_finds_a_chunk_that_starts_too_late(tampered: Tampered) -> None:
    chunk = next(s for s in tampered.selects("PROMPT_ATOMIC") if s.b > 0)
    chunk.b += 1
    finding = assert_first(tampered, "S7", chunk)
    assert finding.evidence["token_start"] == chunk.b


def test_s7_finds_a_chunk_that_ends_too_early(tampered: Tampered) -> None:
    chunk = next(s for s in tampered.selects("PROMPT_ATOMIC") if s.c == 4)
    batch = next(e for e in tampered.all("submit_batch") if e.ticket == chunk.ticket)
    chunk.c -= 1
    batch.tell(tokens=batch.data["tokens"] - 1)
    following = tampered.later(chunk, "select")
    assert_first(tampered, "S7", following)


def test_s7_finds_a_prompt_that_goes_on_before_it_is_done(tampered: Tampered) -> None:
    chunk = tampered.selects("PROMPT_ATOMIC")[-1]
    batch = next(e for e in tampered.all("submit_batch") if e.ticket == chunk.ticket)
    chunk.c -= 1
    batch.tell(tokens=batch.data["tokens"] - 1)
    enqueue = tampered.later(chunk, "enqueue")
    finding = assert_first(tampered, "S7", enqueue)
    assert finding.evidence["computed"] == 6


def test_s7_finds_a_depth_that_is_run_twice(tampered: Tampered) -> None:
    row = next(s for s in tampered.selects("DECODE_RECURRENT") if s.d == 1)
    row.d = 0
    finding = assert_first(tampered, "S7", row)
    assert finding.evidence["depth"] == 0


def test_s7_finds_a_depth_that_is_left_out(tampered: Tampered) -> None:
    """The row and what followed from it are gone; machines and batch still fit together."""
    row = next(s for s in tampered.selects("DECODE_RECURRENT") if (s.ref, s.b, s.d) == (2, 10, 1))
    batch = next(e for e in tampered.all("submit_batch") if e.ticket == row.ticket)
    batch.tell(rows=1, tokens=1)
    enqueue = tampered.later(row, "enqueue")
    following = tampered.later(enqueue, "select")
    tampered.drop(row, enqueue)
    finding = assert_first(tampered, "S7", following)
    assert "depth 1 is due" in finding.message


def test_s7_finds_a_token_at_the_wrong_position(tampered: Tampered) -> None:
    row = tampered.selects("DECODE_PRELUDE")[0]
    row.b -= 1
    finding = assert_first(tampered, "S7", row)
    assert "the one token at 5 is due" in finding.message


def test_s7_finds_a_coda_that_reads_the_wrong_position(tampered: Tampered) -> None:
    row = tampered.selects("DECODE_CODA")[0]
    row.b -= 1
    assert_first(tampered, "S7", row)


def test_s7_finds_an_exit_that_was_not_reached(tampered: Tampered) -> None:
    enqueue = next(e for e in tampered.enqueues("DECODE_CODA") if e.a == 2)
    enqueue.a = 3
    finding = assert_first(tampered, "S7", enqueue)
    assert (finding.evidence["exit_depth"], finding.evidence["loops"]) == (3, 2)


def test_s7_finds_an_output_at_another_depth_than_its_token_ran(tampered: Tampered) -> None:
    output = next(e for e in tampered.all("output") if e.c == 2)
    output.c = 3
    assert_first(tampered, "S7", output)


def test_s7_finds_a_coda_that_is_left_out(tampered: Tampered) -> None:
    enqueue = tampered.enqueues("DECODE_CODA")[0]
    enqueue.move = tampered.move("enqueue", work=("TAKEN:PROMPT_ATOMIC", "QUEUED:DECODE_PRELUDE"))
    enqueue.a = None
    finding = assert_first(tampered, "S7", enqueue)
    assert "without a coda" in finding.message


@pytest.mark.parametrize("key", ["PROMPT_ATOMIC", "DECODE_PRELUDE", "DECODE_CODA"])
def test_s7_finds_a_depth_where_a_row_has_none(tampered: Tampered, key: str) -> None:
    row = tampered.selects(key)[0]
    row.d = 0
    assert_first(tampered, "S7", row)


@pytest.mark.parametrize("key", ["PROMPT_ATOMIC", "DECODE_PRELUDE", "DECODE_RECURRENT"])
def test_s7_finds_a_replay_of_a_request_that_was_never_rewound(
    tampered: Tampered, key: str
) -> None:
    row = tampered.selects(key)[0]
    row.e = 1
    assert_first(tampered, "S7", row)


# ---- split prompts and replays -------------------------------------------------------------------

LogWith = Callable[..., Tampered]
SPLIT = "enqueue:PROMPT_PRELUDE>PROMPT_RECURRENT"
REPLAYED = "enqueue:PROMPT_ATOMIC>DECODE_PRELUDE"


def test_s7_finds_a_depth_of_a_split_prompt_that_begins_too_late(log_with: LogWith) -> None:
    log = log_with(SPLIT)
    row = next(s for s in log.selects("PROMPT_RECURRENT") if s.d == 1)
    row.b += 1
    assert_first(log, "S7", row)


def test_s7_finds_a_depth_of_a_split_prompt_that_runs_ahead(log_with: LogWith) -> None:
    log = log_with(SPLIT)
    row = next(s for s in log.selects("PROMPT_RECURRENT") if s.d == 0)
    row.d = 2
    finding = assert_first(log, "S7", row)
    assert "only 0 are ready for it" in finding.message


def test_s7_finds_a_depth_that_the_model_does_not_have(log_with: LogWith) -> None:
    log = log_with(SPLIT)
    row = log.selects("PROMPT_RECURRENT")[-1]
    row.d = log.model["depths"]
    assert_first(log, "S7", row)


def test_s7_finds_a_replay_that_does_not_begin_at_the_beginning(log_with: LogWith) -> None:
    log = log_with("rewind")
    row = next(s for s in log.all("select") if s.e == 1 and s.b == 0 and s.c > 1)
    row.b += 1
    assert_first(log, "S7", row)


def test_s7_finds_a_row_that_hides_that_it_is_a_replay(log_with: LogWith) -> None:
    """The outputs of a rewound request come back only through rows that say so."""
    log = log_with(REPLAYED)
    back = ("TAKEN:PROMPT_ATOMIC", "QUEUED:DECODE_PRELUDE")
    enqueue = next(e for e in log.all("enqueue") if log.work(e) == back)
    row = [e for e in log.all("select") if e.ref == enqueue.ref and e.seq < enqueue.seq][-1]
    row.e = 0
    assert_first(log, "S7", enqueue)


@pytest.mark.parametrize("kind", [SPLIT, REPLAYED])
def test_a_sealed_copy_of_a_run_with_such_rows_is_clean(log_with: LogWith, kind: str) -> None:
    assert audit.verify(log_with(kind).seal()).ok


@pytest.mark.parametrize(
    "key", ["PROMPT_ATOMIC", "DECODE_PRELUDE", "DECODE_RECURRENT", "DECODE_CODA"]
)
def test_a_row_that_does_not_say_whether_it_is_a_replay_cannot_be_read(
    tampered: Tampered, key: str
) -> None:
    row = tampered.selects(key)[1]
    row.e = None
    finding = assert_first(tampered, "S13", row)
    assert "`select` tells no e" in finding.message
