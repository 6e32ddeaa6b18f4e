"""S1 to S5: a corrupted machine is found where it breaks, by the rule that it breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checking import assert_first
from reseal import Tampered

ACTIVE_ENDS = ("ACTIVE", "FINISHED")
HELD, FREE = ("FREE", "HELD"), ("HELD", "FREE")


def test_s1_finds_an_admission_that_happens_twice(tampered: Tampered) -> None:
    admit = tampered.all("admit")[1]
    again = tampered.duplicate(admit)
    finding = assert_first(tampered, "S1", again)
    assert finding.evidence["source"] == "WAITING"
    assert finding.evidence["state"] == "ACTIVE"
    assert finding.evidence["previous_seq"] == admit.seq


def test_s1_finds_a_missing_admission_at_the_first_selection(tampered: Tampered) -> None:
    admit = tampered.all("admit")[-1]  # nobody is admitted before it while it waits
    select = tampered.later(admit, "select")
    tampered.drop(admit)
    assert_first(tampered, "S1", select)


def test_s1_finds_a_missing_submit_at_the_first_event_that_needs_it(tampered: Tampered) -> None:
    submit = tampered.all("submit")[0]
    admit = tampered.later(submit, "admit")
    tampered.drop(submit)
    finding = assert_first(tampered, "S12", tampered.all("submit")[0])  # numbers tell it first
    assert finding.evidence["due"] == 0
    assert admit.seq > finding.seq


def test_s1_finds_a_verdict_on_a_request_that_is_gone(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda e: e.ref == 0)[0]
    verdict = replace(tampered.all("verdict")[0], ref=0, blocks=0, step=retire.step + 1)
    tampered.insert_after(retire, verdict)
    assert_first(tampered, "S1", verdict)


def test_s1_finds_another_successor_at_the_next_selection(tampered: Tampered) -> None:
    enqueue = next(e for e in tampered.enqueues("DECODE_CODA") if e.ref == 0 and e.a == 2)
    enqueue.move = tampered.move(
        "enqueue", work=("TAKEN:DECODE_RECURRENT", "QUEUED:DECODE_RECURRENT")
    )
    enqueue.a = None
    assert_first(tampered, "S1", tampered.later(enqueue, "select"))


def test_s1_finds_a_move_that_no_declaration_has(tampered: Tampered) -> None:
    enqueue = tampered.enqueues("DECODE_RECURRENT")[0]
    enqueue.move = tampered.move("enqueue", work=("TAKEN:DECODE_PRELUDE", "QUEUED:DECODE_CODA"))
    finding = assert_first(tampered, "S1", enqueue)
    assert "no such move" in finding.message


def test_s1_finds_a_trigger_that_is_not_in_the_table(tampered: Tampered) -> None:
    verdict = tampered.all("verdict")[0]
    verdict.move = tampered.move("ponder")
    assert_first(tampered, "S1", verdict)


def test_s1_finds_a_batch_that_moves_a_request(tampered: Tampered) -> None:
    retired = tampered.all("retire_batch")[2]
    retired.move = tampered.move("retire_batch", status=("ACTIVE", "FINISHED"))
    assert_first(tampered, "S1", retired)


def test_s1_finds_two_events_of_a_request_in_the_wrong_order(tampered: Tampered) -> None:
    finish = tampered.all("finish")[0]
    retire = tampered.later(finish, "retire")
    tampered.swap(finish, retire)
    assert_first(tampered, "S1", retire)


def test_s2_finds_one_slot_too_many(tampered: Tampered) -> None:
    tampered.config["scheduler"]["max_num_seqs"] = 2
    opened = tampered.all("open")[0]
    opened.tell(config=tampered.config)
    finding = assert_first(tampered, "S2", tampered.all("admit")[2])
    assert finding.evidence["max_num_seqs"] == 2
    assert finding.evidence["holders"] == ["a", "b", "c"]


def test_s2_finds_a_step_that_tells_another_number_of_slots(tampered: Tampered) -> None:
    tampered.steps[3].slots_held += 1
    finding = assert_first(tampered, "S2", sealed=False)
    assert finding.step == tampered.steps[3].step
    assert finding.evidence["recounted"] == 3


def test_s3_finds_an_active_request_whose_slot_was_taken_away(tampered: Tampered) -> None:
    admit = tampered.all("admit")[0]
    staged = tampered.duplicate(admit)
    staged.move, staged.extra = tampered.move("staged", slot=FREE), None
    assert_first(tampered, "S3", staged)


def test_s3_finds_an_admission_without_a_slot(tampered: Tampered) -> None:
    admit = tampered.all("admit")[2]
    admit.move = tampered.move(
        "admit",
        status=("WAITING", "ACTIVE"),
        work=("IDLE", "QUEUED:PROMPT_ATOMIC"),
        kv=("NONE", "RESIDENT"),
    )
    assert_first(tampered, "S3", admit)


def test_s4_finds_a_slot_that_outlives_its_request(tampered: Tampered) -> None:
    retire = tampered.all("retire", lambda event: event.ref == 0)[0]
    retire.move = tampered.move("retire", status=("FINISHED", None), kv=("RESIDENT", "NONE"))
    finding = assert_first(tampered, "S4", retire)
    assert "retired" in finding.message


def test_s4_finds_a_slot_in_the_hands_of_a_waiting_request(tampered: Tampered) -> None:
    submit = tampered.all("submit")[0]
    submit.move = tampered.move("submit", status=(None, "WAITING"), slot=HELD)
    assert_first(tampered, "S4", submit)


def test_s5_finds_work_that_is_left_after_the_end(tampered: Tampered) -> None:
    finish = tampered.all("finish")[0]
    finish.move = tampered.move("finish", status=ACTIVE_ENDS)
    finding = assert_first(tampered, "S5", finish)
    assert finding.evidence["work"] == "TAKEN:DECODE_CODA"


@pytest.mark.parametrize("change", [1, -1])
def test_s5_finds_a_step_that_tells_another_number_of_waiting(
    tampered: Tampered, change: int
) -> None:
    tampered.steps[0].waiting += change
    assert_first(tampered, "S5", sealed=False)
