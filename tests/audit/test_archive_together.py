"""Archives and joins beside other processes, other files and other runs: nothing is ever lost."""

import errno
import itertools
import os
import shutil

import pytest
from recovery.scenes import SCENES, config_of, serve, sim, wanted, whole_run
from typer.testing import CliRunner

import audit
from audit.archive import archive
from audit.cli import _engine_state, app
from audit.reader import open_log
from rlt_fsm import Engine, EventLog
from rlt_fsm.errors import LogError
from rlt_fsm.log import archiving, joining
from rlt_fsm.log.joining import join


@pytest.fixture
def live(tmp_path):
    """A log of two runs."""
    path = tmp_path / "run.db"
    with EventLog.open(path) as log:
        whole_run("preempting", log)
        whole_run("plain", log)
    return path


def take(path, into, before_step, run=1):
    return archive(path, into, before_step=before_step, engine_state=_engine_state, run=run)


def events_of(parts, run=1):
    with open_log(parts) as log:
        return list(log.run(run).events())


def meanwhile(monkeypatch, module, name, act, *, call=1):
    """Let something happen once, before a certain call of a module's function."""
    called, calls = getattr(module, name), itertools.count(1)

    def after_it(*arguments, **options):
        if next(calls) == call:
            monkeypatch.setattr(module, name, called)
            act()
        return called(*arguments, **options)

    monkeypatch.setattr(module, name, after_it)


# ---- names ---------------------------------------------------------------------------------------


def test_a_log_may_have_any_name_beside_its_archive(live, tmp_path):
    due = events_of(live)
    path, into, whole = (tmp_path / name for name in ("x.db.part", "x.db", "whole.db"))
    other = tmp_path / "whole.db.part"
    other.write_text("mine", encoding="utf-8")
    shutil.move(live, path)
    take(path, into, 20)
    assert events_of([into, path]) == due
    join([into, path], whole)
    assert events_of(whole) == due
    assert other.read_text(encoding="utf-8") == "mine"
    assert sorted(tmp_path.iterdir()) == sorted([path, into, whole, other])


def test_an_export_leaves_a_file_alone_that_is_named_like_a_part_of_it(live, tmp_path):
    other, out = tmp_path / ".out.part", tmp_path / "out"
    other.write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(app, ["export", str(live), "--format", "jsonl", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert other.read_text(encoding="utf-8") == "mine"
    assert sorted(tmp_path.iterdir()) == sorted([live, other, out])


@pytest.mark.parametrize("moment", ["_copy", "_require_the_same"])
@pytest.mark.parametrize("name", ["archive.db", "other.db"])
def test_of_two_archives_made_at_once_one_is_refused_and_no_event_is_lost(
    live, tmp_path, monkeypatch, moment, name
):
    due, first = events_of(live), tmp_path / name
    meanwhile(monkeypatch, archiving, moment, lambda: take(live, first, 15))
    with pytest.raises(LogError):
        take(live, tmp_path / "archive.db", 30)
    assert events_of([first, live]) == due
    assert audit.verify([first, live]).verdict == "clean"
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]


def test_an_archive_begins_where_the_log_does_when_it_lets_go(live, tmp_path, monkeypatch):
    due = events_of(live)
    first, second = tmp_path / "1.db", tmp_path / "2.db"
    meanwhile(monkeypatch, archiving, "_begin_at", lambda: take(live, first, 15))
    with pytest.raises(LogError, match="by another process meanwhile"):
        take(live, second, 30)
    assert events_of([first, live]) == due


def test_a_name_that_is_taken_while_an_archive_is_made_stays_whose_it_is(
    live, tmp_path, monkeypatch
):
    into, due = tmp_path / "archive.db", events_of(live)
    taken = lambda: into.write_text("mine", encoding="utf-8")  # noqa: E731  # one line
    meanwhile(monkeypatch, archiving, "_require_the_same", taken)
    with pytest.raises(LogError, match="there is such a file already"):
        take(live, into, 20)
    assert into.read_text(encoding="utf-8") == "mine"
    assert events_of(live) == due


@pytest.mark.parametrize("is_taken", [False, True])
def test_where_a_file_cannot_have_two_names_an_archive_is_made_all_the_same(
    live, tmp_path, monkeypatch, is_taken
):
    into, due = tmp_path / "archive.db", events_of(live)

    def no_links(part, path):
        if is_taken:
            into.write_text("mine", encoding="utf-8")
        raise OSError(errno.EPERM, "Operation not permitted", str(part), None, str(path))

    monkeypatch.setattr(os, "link", no_links)
    if is_taken:
        with pytest.raises(LogError, match="there is such a file already"):
            take(live, into, 20)
        assert events_of(live) == due
    else:
        take(live, into, 20)
        assert events_of([into, live]) == due


@pytest.mark.parametrize("name", ["no/such/folder.db", "long" * 100])
def test_a_place_where_no_file_can_be_is_told_in_a_sentence(live, tmp_path, name):
    due = events_of(live)
    for write in (lambda into: take(live, into, 20), lambda into: join([live], into)):
        with pytest.raises(LogError, match=r"cannot be written \(.*\): give another path"):
            write(tmp_path / name)
    assert events_of(live) == due


# ---- several runs --------------------------------------------------------------------------------


def test_the_archives_of_several_runs_are_verified_and_joined_together(live, tmp_path):
    due = {run: events_of(live, run) for run in (1, 2)}
    one, two, three = (tmp_path / f"{number}.db" for number in (1, 2, 3))
    take(live, one, 10)
    take(live, two, 12, run=2)
    take(live, three, 25)
    for number, order in enumerate(itertools.permutations((one, two, three))):
        parts = [*order, live]
        if order.index(one) > order.index(three):
            with pytest.raises(LogError, match=r"give (all|the) archives"):
                audit.verify(parts)
            continue
        report = audit.verify(parts)
        assert report.verdict == "clean", report.findings
        assert [run.trusted for run in report.runs] == [None, None]
        whole = tmp_path / f"whole{number}.db"
        join(parts, whole)
        for run in (1, 2):
            assert events_of(parts, run) == events_of(whole, run) == due[run]
        assert audit.verify(whole).verdict == "clean"


def test_archives_without_the_log_that_goes_on_are_refused(live, tmp_path):
    one, two = tmp_path / "1.db", tmp_path / "2.db"
    take(live, one, 10)
    take(live, two, 12, run=2)
    for parts in ([one, two], [one, live, two], [live, one, two]):
        with pytest.raises(LogError, match="does not go on from an archive here"):
            audit.verify(parts)
    with pytest.raises(LogError, match=r"run 2 begins after seq \d+ here: give 2\.db first"):
        join([one, live], tmp_path / "whole.db")


# ---- a log that is written -----------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["_begins", "copy_numbered"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_log_is_joined_as_it_was_at_one_moment_while_it_is_written(
    tmp_path, monkeypatch, scene, moment
):
    path, into, whole = tmp_path / "run.db", tmp_path / "archive.db", tmp_path / "whole.db"
    with EventLog.open(path) as log:
        engine = Engine(sim(), config_of(scene, durability="step"), log)
        with pytest.raises(AssertionError, match="not done"):
            serve(engine, wanted(), most_steps=17)
        take(path, into, 11)

        def go_on():
            for _ in range(4):
                engine.step()
            engine.close()

        meanwhile(monkeypatch, joining, moment, go_on, call=2)  # at the log itself
        join([into, path], whole)
        report = audit.verify(whole)
        assert not report.findings
        if moment == "copy_numbered":  # by then its last moment is fixed
            assert report.verdict == "inconclusive", "it has no end"
            with Engine.recover(whole, sim()) as again:
                serve(again, wanted())
            assert audit.verify(whole).verdict == "clean"


def test_a_log_that_is_archived_while_it_is_joined_is_not_joined(live, tmp_path, monkeypatch):
    into, whole = tmp_path / "archive.db", tmp_path / "whole.db"
    meanwhile(monkeypatch, joining, "_begins", lambda: take(live, into, 20))
    with pytest.raises(LogError, match=r"give archive\.db first"):
        join([live], whole)
    assert not whole.exists()
