"""A run whose first events were archived: verified as before, folded and recovered as before."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from recovery.scenes import SCENES, config_of, outputs_in, serve, sim, wanted, whole_run

import audit
from audit.archive import NotVerifiedError, archive
from audit.cli import _engine_state
from audit.follow import Follower
from audit.reader import open_log
from audit.run_pass import Pass
from audit.steps import whole_run as steps_of
from rlt_fsm import Engine, EventLog
from rlt_fsm.errors import LogError
from rlt_fsm.replay import fold

RUN_SHIFT = 40


@pytest.fixture(params=list(SCENES))
def whole(request, tmp_path):
    """The file of a run that nothing was taken out of."""
    path = tmp_path / "whole.db"
    with EventLog.open(path) as log:
        whole_run(request.param, log)
    return path


def take(path, into, before_step):
    return archive(path, into, before_step=before_step, engine_state=_engine_state)


def last_step(path):
    with EventLog.open_for_reading(path) as log:
        return max(row[0] for row in log.reader().steps(1))


def cut(whole, before_step, name="run"):
    """A copy of the run without the steps before one, and their archive."""
    live, into = whole.with_name(f"{name}.db"), whole.with_name(f"{name}-archive.db")
    shutil.copy(whole, live)
    take(live, into, before_step)
    return live, into


def test_wherever_a_run_is_cut_its_rest_and_all_of_it_are_clean_as_before(whole):
    last = last_step(whole)
    due = audit.verify(whole)
    for number, before_step in enumerate(range(1, last, max(1, last // 12))):
        live, into = cut(whole, before_step, f"cut{number}")
        rest, joined, begun = audit.verify(live), audit.verify([into, live]), audit.verify(into)
        assert rest.verdict == joined.verdict == "clean", (rest.findings, joined.findings)
        assert begun.verdict == "inconclusive", "it has no end"
        assert rest.runs[0].digest == joined.runs[0].digest == due.runs[0].digest
        assert rest.events + begun.events == joined.events == due.events
        assert into.name in rest.runs[0].trusted
        assert joined.runs[0].trusted is None


def test_a_pass_that_goes_on_from_a_checkpoint_has_in_hand_what_the_whole_pass_has(whole):
    live, _ = cut(whole, last_step(whole) // 2)
    with open_log(whole) as all_of_it, open_log(live) as rest:
        first, second = (Pass(log.run(1, from_checkpoint=True)) for log in (all_of_it, rest))
        later = list(steps_of(rest.run(1, from_checkpoint=True)))
        for step in steps_of(all_of_it.run(1)):
            first.take(step)
            if step.number >= later[0].number:
                second.take(later.pop(0))
                assert first.keep() == second.keep()
    assert not later


def test_the_fold_from_a_checkpoint_is_the_fold_of_everything(whole):
    last = last_step(whole)
    for before_step in (1, last // 3, last // 2, last - 1):
        live, _ = cut(whole, before_step, f"cut{before_step}")
        with EventLog.open_for_reading(whole) as one, EventLog.open_for_reading(live) as other:
            due, folded = fold(one, 1), fold(other, 1)
            assert folded.as_dict() == due.as_dict()
            assert folded.generations.kept() == due.generations.kept()


def test_archives_in_turn_are_read_as_the_run_they_were(whole):
    live = whole.with_name("run.db")
    shutil.copy(whole, live)
    last = last_step(whole)
    parts = []
    for number, before_step in enumerate((last // 4, last // 2, last - 2)):
        parts.append(whole.with_name(f"part{number}.db"))
        take(live, parts[-1], before_step)
    joined = audit.verify([*parts, live])
    assert joined.verdict == "clean", joined.findings
    assert audit.verify([*parts[1:], live]).verdict == "clean"
    with open_log(whole) as one, open_log([*parts, live]) as many:
        assert list(many.run(1).events()) == list(one.run(1).events())
        assert list(many.run(1).steps()) == list(one.run(1).steps())
    with pytest.raises(LogError, match="give all archives of one log, oldest first"):
        audit.verify([parts[0], live])
    with pytest.raises(LogError, match="does not go on from an archive here"):
        audit.verify([live, parts[0]])


# What is done to one event after the cut, as SQL on `event_log`.
WRONGS = {
    "a missing event": "DELETE FROM event_log WHERE key = {key}",
    "blocks": "UPDATE event_log SET blocks = coalesce(blocks, 0) + 1 WHERE key = {key}",
    "a cause": "UPDATE event_log SET cause = 1 WHERE key = {key}",
    "another step": "UPDATE event_log SET step = step + 1 WHERE key = {key}",
    "another ticket": "UPDATE event_log SET ticket = coalesce(ticket, 0) + 1 WHERE key = {key}",
    "a column": "UPDATE event_log SET a = coalesce(a, 0) + 1 WHERE key = {key}",
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_what_is_wrong_after_a_cut_is_found_as_it_is_found_in_the_whole(whole, wrong):
    live, into = cut(whole, last_step(whole) // 2)
    with open_log(live) as log:
        rows = list(log.run(1, from_checkpoint=True).events())
    for place in range(3, len(rows), max(1, len(rows) // 6)):
        key = 1 << RUN_SHIFT | rows[place][0]
        told = []
        for path in (whole, live):
            twin = path.with_name(f"wrong-{path.name}")
            shutil.copy(path, twin)
            with closing(sqlite3.connect(twin)) as connection:
                connection.execute(WRONGS[wrong].format(key=key))
                connection.commit()
            told.append(audit.verify(twin).findings)
        assert _plain(told[0]) == _plain(told[1])
        assert _plain(audit.verify([into, twin]).findings) == _plain(told[0])


def _plain(findings):
    return [(f.invariant, f.seq, f.step, f.request_id, f.message) for f in findings]


def test_an_event_of_a_request_that_was_gone_before_the_cut_is_found_too(whole):
    """What is told of it beside may differ: nothing is remembered of who is gone."""
    live, _ = cut(whole, last_step(whole) - 4)
    with open_log(live) as log:
        place = next(iter(log.run(1, from_checkpoint=True).events()))[0]
    first = []
    for path in (whole, live):
        with closing(sqlite3.connect(path)) as connection:
            sql = "UPDATE event_log SET ref = 0 WHERE key >= ? AND ref IS NOT NULL"
            connection.execute(sql, (1 << RUN_SHIFT | place,))
            connection.commit()
        found = audit.verify(path).findings
        first.append((found[0].invariant, found[0].seq))
    assert first[0] == first[1]


def test_a_beginning_that_is_not_clean_stays_where_it_is(whole):
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute(f"UPDATE event_log SET blocks = 99 WHERE key = {1 << RUN_SHIFT | 9}")
        connection.commit()
    before = whole.read_bytes()
    into = whole.with_name("archive.db")
    with pytest.raises(NotVerifiedError, match="is not clean before step") as refused:
        take(whole, into, last_step(whole) // 2)
    assert refused.value.findings
    assert whole.read_bytes() == before
    assert not into.exists()


def test_a_file_that_is_there_is_not_written_over(whole):
    into = whole.with_name("archive.db")
    into.write_text("mine", encoding="utf-8")
    with pytest.raises(LogError, match="there is such a file already"):
        take(whole, into, 3)
    assert into.read_text(encoding="utf-8") == "mine"
    assert audit.verify(whole).ok


@pytest.mark.parametrize("before_step", [0, 10_000])
def test_a_cut_where_nothing_is_before_or_after_is_refused(whole, before_step):
    with pytest.raises(LogError, match=r"has nothing before|has no step 10000"):
        take(whole, None, before_step)


def test_the_tampered_end_of_an_archive_does_not_join(whole):
    live, into = cut(whole, last_step(whole) // 2)
    with closing(sqlite3.connect(into)) as connection:
        connection.execute("DELETE FROM step_log WHERE step = (SELECT max(step) FROM step_log)")
        connection.commit()
    with pytest.raises(LogError, match="give all archives"):
        audit.verify([into, live])


def test_a_checkpoint_that_tells_otherwise_than_its_archive_is_a_finding(whole):
    live, into = cut(whole, last_step(whole) // 2)
    with closing(sqlite3.connect(live)) as connection:
        connection.execute(
            "UPDATE checkpoint SET audit = replace(audit, '\"_next_ref\":4', '\"_next_ref\":5')"
        )
        changed = connection.total_changes
        connection.commit()
    assert changed
    report = audit.verify([into, live])
    assert [finding.invariant for finding in report.findings] == ["S13"]
    assert "tells otherwise" in report.findings[0].message


ENGINE_WRONGS = {
    "an output more": "json_insert(engine, '$.requests[0].outputs[#]', 7)",
    "a block less": "json_remove(engine, '$.free_blocks[0]')",
    "nobody waits": "json_set(engine, '$.waiting', json('[99]'))",
    "another seq": "json_set(engine, '$.seq', 3)",
    "no state": "'nothing'",
}


@pytest.mark.parametrize("wrong", ENGINE_WRONGS)
def test_a_state_for_engines_that_the_events_did_not_lead_to_is_a_finding(whole, wrong):
    live, into = cut(whole, last_step(whole) // 2)
    with closing(sqlite3.connect(live)) as connection:
        connection.execute(f"UPDATE checkpoint SET engine = {ENGINE_WRONGS[wrong]}")
        connection.commit()
    for parts in (live, [into, live]):
        report = audit.verify(parts)
        assert [finding.invariant for finding in report.findings] == ["S13"]
        assert "tells an engine of" in report.findings[0].message


@pytest.mark.parametrize("scene", SCENES)
def test_an_engine_whose_log_is_archived_while_it_runs_notices_nothing(tmp_path, scene):
    due = whole_run(scene, durability="step")
    path, parts = tmp_path / "run.db", []
    with EventLog.open(path) as log, Engine(sim(), config_of(scene, durability="step"), log) as own:
        step = own.step

        def archiving_step():
            outputs = step()
            if own.current_step in (9, 20, 31):
                parts.append(tmp_path / f"part{len(parts)}.db")
                take(path, parts[-1], own.current_step - 3)
            return outputs

        own.step = archiving_step
        serve(own, wanted())
    assert parts
    joined, rest = audit.verify([*parts, path]), audit.verify(path)
    assert joined.verdict == rest.verdict == "clean"
    assert rest.runs[0].digest == due.reader().runs()[0].digest


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_is_recovered_from_the_checkpoint_of_an_archived_log(tmp_path, scene):
    due = outputs_in(whole_run(scene))
    path, into = tmp_path / "run.db", tmp_path / "archive.db"
    with EventLog.open(path) as log:
        engine = Engine(sim(), config_of(scene, durability="step"), log)
        with pytest.raises(AssertionError, match="not done"):
            serve(engine, wanted(), most_steps=17)
    take(path, into, 11)
    with Engine.recover(path, sim()) as engine:
        serve(engine, wanted())
    with open_log([into, path]) as log:
        assert outputs_in(log.store) == due
    joined, rest = audit.verify([into, path]), audit.verify(path)
    assert joined.verdict == rest.verdict == "clean", (joined.findings, rest.findings)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("is_ahead", [True, False], ids=["unseen", "checked"])
def test_a_watch_goes_on_from_the_checkpoint_and_tells_what_it_had_not_checked(
    tmp_path, scene, is_ahead
):
    path, told = tmp_path / "run.db", []
    follower = Follower(str(path), None, told.append)
    with EventLog.open(path) as log, Engine(sim(), config_of(scene, durability="step"), log) as own:
        step = own.step

        def watched_step():
            outputs = step()
            if own.current_step == 8 or (own.current_step == 24 and not is_ahead):
                assert follower.look()
            if own.current_step in (24, 30):
                take(path, tmp_path / f"part{own.current_step}.db", own.current_step - 3)
                follower.look()
            return outputs

        own.step = watched_step
        serve(own, wanted())
    follower.look()
    report = follower.report(None)
    assert (report.verdict, told) == ("clean", [])
    trusted = report.runs[0].trusted
    assert report.runs[0].digest == audit.verify(path).runs[0].digest
    if not is_ahead:
        assert "part24.db" not in (trusted or "")
        return
    assert "part24.db before this watch had checked them" in trusted
    with open_log([tmp_path / "part24.db", tmp_path / "part30.db", path]) as log:
        whole = log.run(1).info.last_seq
    assert report.events < whole
