"""`explain` and `timeline`: why a request waited, in sentences with the numbers of the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from random_runs import random_run
from reseal import Tampered

import audit
from audit.explain import Explanation, explain
from audit.timeline import Timeline, timeline
from rlt_fsm import Engine, EventLog, LogError, RequestRefused, SamplingParams
from rlt_fsm.config import from_mapping
from runner.sim import SimRunner

Arrival = tuple[int, str, int, dict[str, int]]  # step, id, prompt_len, params
ONE_SLOT = {"scheduler": {"max_num_seqs": 1}, "cache": {"num_blocks": 40, "block_size": 2}}


def run(
    config: dict[str, dict[str, object]], arrivals: Iterable[Arrival], abort: tuple[int, str] = ()
) -> EventLog:
    log = EventLog.memory()
    with Engine(SimRunner(), from_mapping(config), log) as engine:
        for step, request_id, prompt_len, params in arrivals:
            while engine.current_step < step:
                engine.step()
            with suppress(RequestRefused):
                engine.add_request(request_id, [7] * prompt_len, SamplingParams(**params))
        while engine.has_unfinished_requests():
            if abort and engine.current_step == abort[0]:
                engine.abort_request(abort[1])
            engine.step()
    return log


def ask(log: EventLog, request: str, step: int | None = None) -> Explanation:
    with audit.replay(log) as replay:
        return explain(replay, request, step)


def life(log: EventLog, request: str) -> Timeline:
    with audit.replay(log) as replay:
        return timeline(replay, request)


def one_text(lines: Iterable[str] | str) -> str:
    """Lines as one text, so that they may be broken anywhere."""
    return " ".join((lines if isinstance(lines, str) else " ".join(lines)).split())


@pytest.fixture(scope="module")
def two_for_one_slot() -> EventLog:
    two = {"max_tokens": 2}
    return run(ONE_SLOT, [(0, "a", 3, two), (0, "b", 3, two), (0, "c", 90, two), (1, "a", 1, two)])


def test_a_request_without_a_slot_is_told_who_held_it_and_when_it_came_free(
    two_for_one_slot: EventLog,
) -> None:
    answer = ask(two_for_one_slot, "b")
    assert one_text(answer.sentences) == one_text(
        """b came in step 0 (3 prompt tokens, at most 2 outputs) and finished with `length` (it has
        all its outputs) after 2 outputs in step 15. It was in a batch in 8 steps and waited in 8.
        It waited longest to be admitted: 8 steps, from step 0 to step 8.
        It was passed over, as recorded in step 0: no slot was free and nobody less urgent held one.
        The one slot was held, by a (since step 0).
        It needed 8 blocks; of 40 blocks 32 were free, enough; a held 8.
        In step 8 it was admitted, state row 0, 8 blocks taken, after a retired, 8 blocks given back
        (step 7)."""
    )
    (wait,) = answer.waits
    assert (wait.work, wait.steps, wait.since_step, wait.until_step) == ("admission", 8, 0, 8)
    assert (answer.step, answer.ran) == (None, None)


def test_one_step_is_explained_with_the_state_of_that_step(two_for_one_slot: EventLog) -> None:
    answer = ask(two_for_one_slot, "b", 2)
    assert (answer.step, answer.ran) == (2, False)
    assert answer.sentences[0] == "b did not run in step 2: it was WAITING since step 0."
    assert "The one slot was held, by a (since step 0)." in answer.sentences


def test_a_step_in_which_it_ran_is_told_with_its_batch(two_for_one_slot: EventLog) -> None:
    answer = ask(two_for_one_slot, "a", 0)
    assert answer.ran
    assert answer.sentences == [
        "a ran in step 0: row 0 of ticket 0: PROMPT_ATOMIC, positions 0 to 2.",
        "Ticket 0 ran PROMPT_ATOMIC (1 row, 3 tokens) because prompts were ready.",
    ]


ENDED = "it had finished with `length` (it has all its outputs) after 2 outputs in step 7"
REFUSED = "refused: it needs 184 blocks and the pool has 40"


@pytest.mark.parametrize(
    ("request_id", "step", "sentence"),
    [
        ("a", None, "It never waited: it was in a batch in every step in which it could be."),
        ("a", 11, f"a did not run in step 11: {ENDED}."),
        ("c", None, f"c was {REFUSED} (step 0); it never waited."),
        ("c", 3, f"c never ran: it was {REFUSED} in step 0."),
    ],
)
def test_the_last_sentence_sums_up(
    request_id: str, step: int | None, sentence: str, two_for_one_slot: EventLog
) -> None:
    assert ask(two_for_one_slot, request_id, step).sentences[-1] == sentence


def test_a_second_use_of_an_id_is_asked_for_by_its_generation(two_for_one_slot: EventLog) -> None:
    (sentence,) = ask(two_for_one_slot, "a#2").sentences
    assert sentence == (
        "a#2 was refused: the id is in use (generation 1, ACTIVE) (step 1); it never waited."
    )


def test_a_request_without_blocks_is_told_who_held_them() -> None:
    config = {"scheduler": {"max_num_seqs": 3}, "cache": {"num_blocks": 24, "block_size": 2}}
    four, two = {"max_tokens": 4}, {"max_tokens": 2}
    log = run(config, [(0, "a", 5, four), (0, "b", 5, four), (0, "c", 1, two)])
    sentences = ask(log, "b").sentences
    assert sentences[2:5] == [
        "It was passed over, as recorded in step 0: it needed 16 blocks and 8 could be had.",
        "1 of 3 slots was held; 2 were free.",
        "It needed 16 blocks; of 24 blocks 8 were free; a held 16.",
    ]
    assert sentences[5].endswith(
        "after c retired, 4 blocks given back (step 7) and a retired, 16 blocks given back (step "
        "19)."
    )
    middle = ask(log, "b", 3).sentences
    assert middle[2] == (
        "1 request that came after it had been admitted before it (max_admission_bypasses is 8)."
    )


PRIORITY = {"max_num_seqs": 1, "policy": "priority", "enable_preemption": True}


def test_a_request_that_gave_its_slot_up_is_told_for_whom() -> None:
    config = {"scheduler": PRIORITY, "cache": {"num_blocks": 32, "block_size": 2}}
    low, high = {"max_tokens": 4, "priority": 2}, {"max_tokens": 4}
    log = run(config, [(0, "low", 5, low), (3, "high", 5, high)])
    sentences = ask(log, "low").sentences
    assert "In step 4 it gave its slot up for high; it kept its 16 blocks." in sentences
    assert "Of 32 blocks 0 were free; low held 16 and high held 16." in sentences
    assert sentences[-1] == (
        "In step 24 it went on, state row 0, after high retired, 16 blocks given back (step 23)."
    )
    assert ask(log, "high").sentences[-1] == (
        "In step 4 it was admitted, state row 0, 16 blocks taken, after low gave its slot up for "
        "high; it kept its 16 blocks (step 4)."
    )


def test_a_request_that_lost_its_kv_and_was_aborted_is_told_so() -> None:
    cache = {"num_blocks": 16, "block_size": 2, "host_snapshot_blocks": 0}
    low, high = {"max_tokens": 4, "priority": 2}, {"max_tokens": 4}
    config = {"scheduler": PRIORITY | {"max_num_seqs": 2}, "cache": cache}
    log = run(config, [(0, "low", 5, low), (3, "high", 5, high)], abort=(8, "low"))
    sentences = ask(log, "low").sentences
    assert "and was aborted in step 8" in sentences[0]
    assert sentences[2] == (
        "In step 4 it lost its KV and 16 blocks for high, to be computed again: the host had no "
        "room for its KV."
    )
    assert sentences[-1] == "It was aborted in step 8."


def test_work_that_waited_for_its_batch_is_told_what_ran_instead() -> None:
    config = {"scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 2}}
    log = run(config | {"cache": {"num_blocks": 64, "block_size": 2}},
              [(0, name, 1, {"max_tokens": 3}) for name in "abcd"])  # fmt: skip
    answer = ask(log, "d")
    assert one_text(answer.sentences[1:-1]) == one_text(
        """It waited longest with PROMPT_ATOMIC queued: 4 steps, from step 0 to step 4.
        A batch left it out in step 0: the batch was full, with 2 rows and 0 tokens left.
        Meanwhile 4 batches ran: 1 of PROMPT_ATOMIC because prompts were ready, 1 of DECODE_CODA
        because tokens had left the loop, 1 of DECODE_PRELUDE because tokens were ready to be
        embedded and 1 of DECODE_RECURRENT because prompts had had their share of batches. 1 of them
        had its key, without it.
        It went on in step 4, row 1 of ticket 4: PROMPT_ATOMIC, position 0; that batch ran because
        prompts were ready."""
    )
    assert ask(log, "d", 2).sentences[0] == (
        "d did not run in step 2: its PROMPT_ATOMIC was queued since step 0."
    )


def test_a_request_that_still_waits_when_the_log_ends_is_told_so() -> None:
    log = EventLog.memory()
    engine = Engine(SimRunner(), from_mapping(ONE_SLOT), log)
    for name in "ab":
        engine.add_request(name, [7] * 3, SamplingParams(max_tokens=3))
    for _ in range(4):
        engine.step()
    engine.add_request("late", [1])  # commits the steps before
    sentences = ask(log, "b").sentences
    assert "was still there when the log ended" in sentences[0]
    assert "from step 0 to the end of the log" in sentences[1]
    assert sentences[-1] == "It still waits when the log ends."
    engine.close()


@pytest.mark.parametrize("seed", range(25))
def test_every_request_of_any_run_can_be_explained_at_every_step(seed: int) -> None:
    log = random_run(seed, whole_scheduler=True)
    if log is None:
        return
    with audit.replay(log) as replay:
        for row in list(replay.run.requests.values())[:6]:
            name = f"{row.request_id}#{row.generation}"
            told = timeline(replay, name)
            ran = {entry.step for entry in told.entries if entry.trigger == "select"}
            assert all(entry.what and "None" not in entry.what for entry in told.entries)
            assert explain(replay, name).sentences
            for step in range(0, replay.last_step + 1, 3):
                answer = explain(replay, name, step)
                assert answer.ran == (step in ran)
                assert all(s.endswith(".") and "None" not in s for s in answer.sentences)
                assert not any("does not tell why" in s for s in answer.sentences), (name, step)


# ---- timeline --------------------------------------------------------------------------------


def test_a_timeline_has_one_line_for_each_event_with_its_wait(two_for_one_slot: EventLog) -> None:
    told = life(two_for_one_slot, "b")
    assert [(entry.step, entry.waited, entry.what) for entry in told.entries[:5]] == [
        (0, None, "submitted: 3 prompt tokens, at most 2 outputs"),
        (0, None, "passed over: no slot was free and nobody less urgent held one"),
        (8, 8, "admitted, state row 0, 8 blocks taken"),
        (8, 0, "row 0 of ticket 8: PROMPT_ATOMIC, positions 0 to 2"),
        (8, None, "DECODE_CODA is next, 4 loops were run"),
    ]
    assert told.entries[2].moved == (
        "WAITING→ACTIVE  IDLE→QUEUED:PROMPT_ATOMIC  FREE→HELD  NONE→RESIDENT"
    )
    assert told.entries[-1].what == "retired, 8 blocks given back"
    assert told.waited == 8


def test_the_waits_of_a_timeline_are_the_steps_it_was_not_in_a_batch() -> None:
    for seed in range(8):
        log = random_run(seed, whole_scheduler=True)
        if log is None:
            continue
        with audit.replay(log) as replay:
            for row in replay.run.requests.values():
                told = timeline(replay, f"{row.request_id}#{row.generation}")
                ends = [e.step for e in told.entries if e.trigger in ("finish", "abort")]
                if not ends or told.entries[0].trigger == "refuse":
                    continue
                ran = {entry.step for entry in told.entries if entry.trigger == "select"}
                is_aborted = any(entry.trigger == "abort" for entry in told.entries)
                alive = ends[0] - told.entries[0].step + (not is_aborted)
                assert told.waited + len(ran) == alive


def test_an_event_that_cannot_be_read_is_a_line_that_says_so(tampered: Tampered) -> None:
    tampered.all("admit")[0].extra = '{"state_row": "x"}'
    with audit.replay(tampered.seal()) as replay:
        told = timeline(replay, "a")
        assert "`admit`, which cannot be read: " in told.entries[1].what
        assert explain(replay, "a").sentences


# ---- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bb", "run 1 has no request 'bb': did you mean b?"),
        ("a#3", "run 1 has no request 'a#3': of this id it has a, a#2"),
        ("zzzz", "run 1 has no request 'zzzz': its 3 ids are like a, b, c"),
    ],
)
def test_a_mistyped_request_gets_the_nearest_names(
    name: str, sentence: str, two_for_one_slot: EventLog
) -> None:
    with pytest.raises(LogError) as caught:
        ask(two_for_one_slot, name)
    assert str(caught.value) == sentence


def test_a_run_without_requests_says_so() -> None:
    log = run(ONE_SLOT, [])
    with pytest.raises(LogError, match="has no request 'a': it has no requests at all"):
        ask(log, "a")


def test_an_id_with_a_hash_in_it_is_found() -> None:
    log = run(ONE_SLOT, [(0, "a#2", 1, {}), (0, "ünï ☃", 1, {})])
    assert life(log, "a#2").request == "a#2"
    assert life(log, "a#2#1").request == "a#2"
    assert life(log, "ünï ☃").request == "ünï ☃"
