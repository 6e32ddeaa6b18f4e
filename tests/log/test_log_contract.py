"""What every adapter of the log must do; each test runs over all of them."""

import pytest
from log_rows import HEADER, MOVE_TEXTS, REQUESTS, Script, grow_events, move, step_row

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.digest import move_texts
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.move_rows import MOVE_ROWS
from rlt_fsm.log.port import EventRow, MoveRow, RequestRow, RunHeader, RunInfo, StepRow


def test_a_new_log_has_no_runs(log):
    assert log.reader().runs() == []


def test_a_run_is_listed_with_its_header_from_its_beginning(log):
    writer = log.begin_run(HEADER)
    assert log.reader().runs() == [
        RunInfo(
            run_id=writer.run_id,
            started_at="2031-05-04T03:02:01Z",
            ended_at=None,
            outcome="running",
            schema_version=1,
            engine_version="0.1.0",
            revision="abc123",
            config='{"scheduler":{"max_num_seqs":2}}',
            model='{"name":"sim","depths":4}',
            workload=None,
            last_seq=0,
            digest=None,
        )
    ]


def test_a_workload_is_kept_as_it_was_given(log):
    log.begin_run(HEADER._replace(workload='{"format":"rlt-workload/1"}'))
    assert log.reader().runs()[0].workload == '{"format":"rlt-workload/1"}'


def test_rows_are_seen_after_commit_and_not_before(log):
    writer, reader = log.begin_run(HEADER), log.reader()
    writer.write(grow_events(1, 3), [REQUESTS[0]], [step_row(0, 1, 3)])
    assert list(reader.events(writer.run_id)) == []
    assert reader.requests(writer.run_id) == []
    assert list(reader.steps(writer.run_id)) == []
    assert reader.runs()[0].last_seq == 0
    writer.commit()
    assert list(reader.events(writer.run_id)) == grow_events(1, 3)
    assert reader.requests(writer.run_id) == [REQUESTS[0]]
    assert list(reader.steps(writer.run_id)) == [step_row(0, 1, 3)]
    assert reader.runs()[0].last_seq == 3


def test_what_is_written_comes_back_value_for_value(log):
    script = Script()
    script.add("open", step=0, extra='{"config":{},"model":{"name":"mödel \\"x\\""}}')
    script.add("select||QUEUED:DECODE_RECURRENT>TAKEN:DECODE_RECURRENT||", step=1, ticket=0, ref=0,
               blocks=12, cause=1, columns=(0, 137, 1, 2, 0))  # fmt: skip
    script.add("output", step=1, ticket=0, ref=0, blocks=12, columns=(0, 65, 4, -0.1))
    script.add("output", step=1, ticket=0, ref=0, blocks=12, columns=(1, 66, 4, -3.0))
    script.add("output", step=1, ticket=0, ref=0, blocks=12, columns=(2, 67, 4, float("-inf")))
    script.add("verdict", step=2**40, ref=1, reason="blocks need=12 free=8")
    writer = log.begin_run(HEADER)
    writer.write(script.events)
    writer.commit()
    back = list(log.reader().events(writer.run_id))
    assert back == script.events
    types_written = [[type(value) for value in row] for row in script.events]
    assert [[type(value) for value in row] for row in back] == types_written


def test_events_need_not_be_named_tuples(log):
    writer = log.begin_run(HEADER)
    writer.write([tuple(row) for row in grow_events(1, 2)])
    writer.commit()
    assert list(log.reader().events(writer.run_id)) == grow_events(1, 2)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 1000])
def test_any_number_of_rows_goes_in_and_out_in_order(log, count):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, count))
    writer.commit()
    assert [row[0] for row in log.reader().events(writer.run_id)] == list(range(1, count + 1))


def test_many_writes_make_one_commit(log):
    writer = log.begin_run(HEADER)
    for first in range(1, 301, 3):
        writer.write(grow_events(first, 3))
    writer.commit()
    assert list(log.reader().events(writer.run_id)) == grow_events(1, 300)


def test_the_caller_may_reuse_the_lists_it_wrote(log):
    writer = log.begin_run(HEADER)
    events, requests, steps = grow_events(1, 2), [REQUESTS[0]], [step_row(0, 1, 2)]
    writer.write(events, requests, steps)
    for rows in (events, requests, steps):
        rows.clear()
    writer.commit()
    assert list(log.reader().events(writer.run_id)) == grow_events(1, 2)
    assert log.reader().requests(writer.run_id) == [REQUESTS[0]]
    assert list(log.reader().steps(writer.run_id)) == [step_row(0, 1, 2)]


def test_an_empty_commit_changes_nothing(log):
    writer = log.begin_run(HEADER)
    writer.write([])
    writer.commit()
    writer.commit()
    assert log.reader().runs()[0].last_seq == 0


def test_reading_can_start_after_any_event(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 10))
    writer.commit()
    for after in (0, 1, 9, 10, 11):
        assert list(log.reader().events(writer.run_id, after)) == grow_events(1, 10)[after:]


def test_an_iterator_ends_with_what_was_committed_when_it_was_made(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 5000))
    writer.commit()
    events = log.reader().events(writer.run_id)
    next(events)
    writer.write(grow_events(5001, 10))
    writer.commit()
    assert sum(1 for _ in events) == 4999
    assert sum(1 for _ in log.reader().events(writer.run_id)) == 5010


def test_two_iterators_do_not_disturb_each_other(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 5000))
    writer.commit()
    reader = log.reader()
    pairs = zip(reader.events(writer.run_id), reader.events(writer.run_id), strict=True)
    assert all(left == right for left, right in pairs)


def test_runs_of_one_log_are_kept_apart_also_when_written_at_once(log):
    first, second = log.begin_run(HEADER), log.begin_run(HEADER._replace(revision="def456"))
    assert first.run_id != second.run_id
    first.write(grow_events(1, 2), [REQUESTS[0]], [step_row(0, 1, 2, b"\x01" * 32)])
    second.write(grow_events(1, 5), [REQUESTS[1]._replace(ref=0)], [step_row(0, 1, 5)])
    second.commit()
    first.commit()
    first.write(grow_events(3, 1))
    first.commit()
    reader = log.reader()
    assert list(reader.events(first.run_id)) == grow_events(1, 3)
    assert list(reader.events(second.run_id)) == grow_events(1, 5)
    assert reader.requests(second.run_id) == [RequestRow(0, "b", 1)]
    infos = {info.run_id: info for info in reader.runs()}
    assert [info.run_id for info in reader.runs()] == sorted(infos)
    assert infos[first.run_id].digest == "01" * 32
    assert infos[second.run_id].digest == "07" * 32
    assert infos[second.run_id].revision == "def456"


def test_an_unknown_run_is_empty(log):
    reader = log.reader()
    assert list(reader.events(7)) == []
    assert list(reader.steps(7)) == []
    assert reader.requests(7) == []


def test_ending_a_run_stores_what_is_pending_with_its_outcome(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 2), steps=[step_row(0, 1, 2)])
    writer.end("drained", "2031-05-04T03:03:00Z")
    (info,) = log.reader().runs()
    assert (info.outcome, info.ended_at) == ("drained", "2031-05-04T03:03:00Z")
    assert info.last_seq == 2


def test_a_run_that_was_recovered_counts_as_crashed_until_it_ends(log):
    script = Script()
    script.add("open", step=0)
    script.add("recover", step=1)
    writer = log.begin_run(HEADER)
    writer.write(script.events)
    assert log.reader().runs()[0].outcome == "running"
    writer.commit()
    assert log.reader().runs()[0].outcome == "crashed"
    writer.end("closed", "2031-05-04T03:03:00Z")
    assert log.reader().runs()[0].outcome == "closed"


def test_the_digest_of_a_run_is_that_of_its_last_step(log):
    writer = log.begin_run(HEADER)
    steps = [step_row(n, n + 1, n + 1, bytes([n]) * 32) for n in (0, 3, 9)]
    writer.write(grow_events(1, 3), steps=steps)
    writer.commit()
    assert list(log.reader().steps(writer.run_id)) == steps
    assert log.reader().runs()[0].digest == "09" * 32


def test_rows_come_in_the_order_of_their_fields(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 1), REQUESTS, [step_row(0, 1, 1)])
    writer.commit()
    reader = log.reader()
    assert EventRow(*next(reader.events(1))).move == move("grow")
    assert StepRow(*next(reader.steps(1))).host_blocks == 5
    assert [request.request_id for request in reader.requests(1)] == ["a", "b", "a"]


def test_a_log_says_what_its_moves_mean(log):
    writer = log.begin_run(HEADER)
    moves = log.reader().moves(writer.run_id)
    assert all(isinstance(row, MoveRow) for row in moves)
    assert moves == list(MOVE_ROWS)
    assert move_texts(moves) == MOVE_TEXTS


def test_a_log_says_what_transition_shows_of_each_move(log):
    writer = log.begin_run(HEADER)
    shown = {}
    for edge in log.reader().edges(writer.run_id):
        shown.setdefault(edge.move, []).append(edge[1:])
    machines = ("status", "work", "slot", "kv")
    for row in log.reader().moves(writer.run_id):
        pairs = zip(machines, row[2::2], row[3::2], strict=True)
        assert shown.get(row.move, []) == [pair for pair in pairs if pair[1:] != (None, None)]


def test_the_state_before_submit_and_after_retire_is_null(log):
    log.begin_run(HEADER)
    moves = log.reader().moves(1)
    submit = moves[move("submit|NULL>WAITING|||")]
    retire = moves[move("retire|FINISHED>NULL|||")]
    assert (submit.status_from, submit.status_to) == (None, "WAITING")
    assert (retire.status_from, retire.status_to) == ("FINISHED", None)


def test_writing_a_sequence_number_twice_is_caught(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 3))
    with pytest.raises(AssertionError, match="seq 3 was written before"):
        writer.write(grow_events(3, 1))


def test_nothing_is_written_to_a_run_that_has_ended(log):
    writer = log.begin_run(HEADER)
    writer.end("drained", "2031-05-04T03:03:00Z")
    with pytest.raises(AssertionError, match="the run has ended"):
        writer.write(grow_events(1, 1))


def test_a_closed_log_stores_nothing_and_says_so(log):
    writer = log.begin_run(HEADER)
    writer.write(grow_events(1, 1))
    log.close()
    log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        writer.commit()
    with pytest.raises(LogUnavailable, match="closed"):
        log.begin_run(HEADER)


def test_a_log_has_a_name(log, log_path):
    assert log.name in {":memory:", str(log_path)}


@pytest.mark.parametrize("location", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_the_usual_spellings_of_memory_open_a_log_in_memory(location):
    assert EventLog.open(location).name == ":memory:"


def test_the_header_covers_every_column_of_a_run_that_its_writer_knows():
    assert set(RunHeader._fields) < set(RunInfo._fields)


def _committed(log, count):
    """A run of `grow` events of ref 0; every third is of ref 1, every fifth an output."""
    events = [
        (*row[:4], int(row[0] % 3 == 0), move("output" if row[0] % 5 == 0 else "grow"), *row[6:])
        for row in grow_events(1, count)
    ]
    writer = log.begin_run(HEADER)
    writer.write(events, REQUESTS)
    writer.commit()
    return writer, events


def test_the_first_event_after_a_seq_is_found_alone(log):
    writer, events = _committed(log, 10)
    reader = log.reader()
    assert reader.first_after(writer.run_id, 0) == events[0]
    assert reader.first_after(writer.run_id, 6) == events[6]
    assert reader.first_after(writer.run_id, 10) is None
    writer.write(grow_events(12, 1))
    assert reader.first_after(writer.run_id, 10) is None
    writer.commit()
    assert reader.first_after(writer.run_id, 10)[0] == 12
    assert reader.first_after(99, 0) is None


def test_events_are_selected_by_ref_or_move_within_a_range(log):
    writer, events = _committed(log, 5000)
    reader = log.reader()
    by_ref = [row for row in events if row[4] == 1]
    outputs = {move("output")}
    assert list(reader.select(writer.run_id, refs=[1])) == by_ref
    assert list(reader.select(writer.run_id, moves=outputs)) == events[4::5]
    assert list(
        reader.select(writer.run_id, refs={1}, moves=outputs, after_seq=5, until_seq=12)
    ) == [events[seq - 1] for seq in (6, 9, 10, 12)]
    assert list(reader.select(writer.run_id, refs=[1], until_seq=10**9)) == by_ref
    assert list(reader.select(writer.run_id)) == []
    assert list(reader.select(writer.run_id, refs=[7])) == []
    assert list(reader.select(99, refs=[1])) == []


def test_what_is_not_committed_is_not_selected(log):
    writer, events = _committed(log, 6)
    writer.write(grow_events(7, 3))
    assert list(log.reader().select(writer.run_id, refs=[0, 1])) == events


def test_steps_can_be_read_from_the_middle(log):
    writer = log.begin_run(HEADER)
    rows = [step_row(step, step + 1, step + 1) for step in (0, 1, 4, 9)]
    writer.write(grow_events(1, 10), steps=rows)
    writer.commit()
    reader = log.reader()
    assert list(reader.steps(writer.run_id, 0)) == rows[1:]
    assert list(reader.steps(writer.run_id, 2)) == rows[2:]
    assert list(reader.steps(writer.run_id, 9)) == []


def test_a_step_is_found_by_its_number_or_the_next_lower_one(log):
    writer, reader = log.begin_run(HEADER), log.reader()
    rows = [step_row(0, 1, 2), step_row(3, 3, 3), step_row(4, 4, 6)]
    writer.write(grow_events(1, 6), [REQUESTS[0]], rows)
    assert reader.step_at(writer.run_id, 4) is None  # not committed
    writer.commit()
    found = [reader.step_at(writer.run_id, step) for step in (-1, 0, 2, 3, 4, 2**62)]
    assert found == [None, rows[0], rows[0], rows[1], rows[2], rows[2]]
    assert reader.step_at(writer.run_id + 1, 4) is None


def test_a_log_that_finds_ids_knows_the_newest_generation_of_each_in_its_run(log):
    writer, other = log.begin_run(HEADER), log.begin_run(HEADER)
    writer.write([], REQUESTS)
    writer.commit()
    newest = log.generation_lookup(writer.run_id)
    if newest is not None:
        assert [newest(name) for name in ("a", "b", "c", "")] == [2, 1, 0, 0]
    elsewhere = log.generation_lookup(other.run_id)
    assert elsewhere is None or elsewhere("a") == 0
