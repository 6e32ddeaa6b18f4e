"""Every refusal of a log file is one clear sentence, and costs nothing that was committed."""

import os
import shutil
import sqlite3
import tempfile
import warnings
from pathlib import Path

import pytest
from log_rows import (
    HEADER,
    REQUESTS,
    assert_one_sentence,
    committed_events,
    grow_events,
    make_log,
    step_row,
)

from rlt_fsm.errors import LogError, LogUnavailable, NotALog, UnknownSchema
from rlt_fsm.log.event_log import EventLog

NOBODY = 65534
BOTH_WAYS = pytest.mark.parametrize("open_log", [EventLog.open, EventLog.open_for_reading])


def _sql(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@BOTH_WAYS
@pytest.mark.parametrize("text", ["hello", "not a database\n" * 1000])
def test_a_text_file_is_not_a_log_and_stays_as_it_is(open_log, log_path, text):
    log_path.write_text(text)
    with pytest.raises(NotALog, match="not an event log") as error:
        open_log(log_path)
    assert_one_sentence(error, log_path)
    assert log_path.read_text() == text
    assert [entry.name for entry in log_path.parent.iterdir()] == ["run.db"]


@BOTH_WAYS
def test_another_sqlite_database_is_not_a_log_and_stays_as_it_is(open_log, log_path):
    _sql(log_path, "CREATE TABLE event (run_id, seq)", "INSERT INTO event VALUES (1, 1)")
    before = log_path.read_bytes()
    with pytest.raises(NotALog, match="an SQLite database, but not an event log") as error:
        open_log(log_path)
    assert_one_sentence(error, log_path)
    assert log_path.read_bytes() == before
    assert [entry.name for entry in log_path.parent.iterdir()] == ["run.db"]


@BOTH_WAYS
def test_a_log_of_an_unknown_schema_names_both_versions(open_log, log_path):
    make_log(log_path)
    _sql(log_path, "PRAGMA user_version = 7")
    before = log_path.read_bytes()
    with pytest.raises(UnknownSchema, match="schema version 7; this rlt-fsm knows 1") as error:
        open_log(log_path)
    assert_one_sentence(error, log_path)
    assert log_path.read_bytes() == before


def test_an_empty_file_becomes_a_log_when_written_and_is_none_when_read(log_path):
    log_path.touch()
    with pytest.raises(NotALog, match="an empty file"):
        EventLog.open_for_reading(log_path)
    assert log_path.read_bytes() == b""
    make_log(log_path)
    assert committed_events(log_path) == 3


def test_reading_never_makes_a_file(log_path):
    with pytest.raises(LogUnavailable, match="there is no such file") as error:
        EventLog.open_for_reading(log_path)
    assert_one_sentence(error, log_path)
    assert list(log_path.parent.iterdir()) == []


@BOTH_WAYS
def test_a_folder_is_not_a_log(open_log, tmp_path):
    with pytest.raises(LogUnavailable, match="this is a folder") as error:
        open_log(tmp_path)
    assert_one_sentence(error, tmp_path)


def test_a_log_in_a_missing_folder_names_the_folder(tmp_path):
    path = tmp_path / "no" / "run.db"
    with pytest.raises(LogUnavailable, match=r"the folder .* does not exist") as error:
        EventLog.open(path)
    assert_one_sentence(error, path)


def test_an_empty_path_is_refused():
    with pytest.raises(LogUnavailable, match="path is empty"):
        EventLog.open("")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://me:secret@host/logs",
            r"postgresql://me:\*\*\*@host/logs: this version keeps",
        ),
        ("sqlite+aiosqlite:///run.db", r"sqlite\+aiosqlite:///run.db: this version keeps"),
        ("://", "neither a path nor a database URL"),
    ],
)
def test_a_database_that_is_not_supported_is_named_without_its_password(url, shown):
    with pytest.raises(LogUnavailable, match=shown) as error:
        EventLog.open(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["run.db", "odd name?#%20.db", "файл.db"])
def test_any_file_name_will_do(tmp_path, name):
    make_log(tmp_path / name)
    assert committed_events(tmp_path / name) == 3
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_url_opens_the_same_file_as_its_path(log_path):
    make_log(f"sqlite:///{log_path}")
    assert committed_events(log_path) == 3
    assert committed_events(f"sqlite:///{log_path}") == 3
    assert committed_events(f"sqlite:///file:{log_path}?uri=true") == 3


def test_a_log_opened_for_reading_stores_nothing(log_path):
    make_log(log_path)
    with EventLog.open_for_reading(log_path) as log:
        with pytest.raises(LogUnavailable, match="opened for reading"):
            log.begin_run(HEADER)
        assert len(log.reader().runs()) == 1


def test_a_closed_log_cannot_be_read_and_says_so(log_path):
    make_log(log_path)
    log = EventLog.open_for_reading(log_path)
    reader = log.reader()
    log.close()
    with pytest.raises(LogUnavailable, match="the log is closed"):
        reader.runs()


def test_a_url_that_forbids_writing_is_found_when_the_log_is_opened(log_path):
    make_log(log_path)
    url = f"sqlite:///file:{log_path}?mode=ro&uri=true"
    with pytest.raises(LogUnavailable, match="the file or its folder is read-only") as error:
        EventLog.open(url)
    assert_one_sentence(error, url)


@pytest.fixture
def shared_folder():
    """A folder that any user may read, outside pytest's private ones."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _as_a_user_without_rights(action):
    """What `action` raises or returns, as text, in a child that file permissions bind."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns where a test runner has threads; the child touches none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = str(action())
        except LogError as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, answer.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("file_mode", [0o444, 0o666])
def test_a_log_in_a_read_only_place_can_be_read_but_not_written(shared_folder, file_mode):
    path = shared_folder / "run.db"
    make_log(path)
    path.chmod(file_mode)
    shared_folder.chmod(0o555)
    refusal = _as_a_user_without_rights(lambda: EventLog.open(path))
    assert refusal == (
        f"LogUnavailable: {path}: the file or its folder is read-only: make both writable"
    )
    assert _as_a_user_without_rights(lambda: committed_events(path)) == "3"


def test_a_log_cannot_be_made_in_a_read_only_folder(shared_folder):
    path = shared_folder / "run.db"
    shared_folder.chmod(0o555)
    refusal = _as_a_user_without_rights(lambda: EventLog.open(path))
    assert refusal == (
        f"LogUnavailable: {path}: it cannot be opened: check that the file and its folder may be "
        "used"
    )


def test_a_damaged_log_is_refused_or_fails_with_one_sentence(log_path):
    make_log(log_path, events=5000)
    content = log_path.read_bytes()
    log_path.write_bytes(content[: len(content) // 2])
    with pytest.raises(LogUnavailable, match="the file is damaged") as error:
        committed_events(log_path)
    assert_one_sentence(error, log_path)


def test_reading_leaves_the_file_and_its_folder_as_they_are(log_path):
    make_log(log_path)
    before = log_path.read_bytes()
    assert committed_events(log_path) == 3
    assert log_path.read_bytes() == before
    assert [entry.name for entry in log_path.parent.iterdir()] == ["run.db"]


@BOTH_WAYS
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (5, "the log's path is 5: give a text or a Path"),
        (None, "the log's path is None: give a text or a Path"),
        (b"run.db", "the log's path is b'run.db': give a text or a Path"),
        ("run\0.db", "'run\\x00.db': no file can have this name"),
        ("\ud800.db", "'\\ud800.db': no file can have this name"),
        ("x" * 5000, "File name too long: give another path"),
    ],
    ids=["number", "none", "bytes", "nul", "surrogate", "long"],
)
def test_a_place_that_no_file_can_have_is_refused_and_nothing_is_made(
    open_log, place, sentence, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogUnavailable) as error:
        open_log(place)
    assert sentence in str(error.value)
    assert list(tmp_path.iterdir()) == []


LATE_ROWS = {
    "events": {"events": grow_events(1, 1)},
    "requests": {"events": [], "requests": REQUESTS[:1]},
    "steps": {"events": [], "steps": [step_row(0, 1, 1)]},
}


@pytest.mark.parametrize("late", LATE_ROWS)
def test_a_writer_whose_run_another_went_on_with_says_so_whatever_it_writes(file_log, late):
    writer = file_log.begin_run(HEADER)
    other = file_log.continue_run(writer.run_id)
    other.write(grow_events(1, 1), REQUESTS[:1], [step_row(0, 1, 1)])
    other.commit()
    writer.write(**LATE_ROWS[late])
    with pytest.raises(LogUnavailable, match="another process has gone on with it"):
        writer.commit()


def test_a_writer_whose_run_another_has_ended_says_so(file_log):
    writer = file_log.begin_run(HEADER)
    file_log.continue_run(writer.run_id).end("drained", "2031-05-04T03:03:00Z")
    with pytest.raises(LogUnavailable, match="another process has gone on with it"):
        writer.end("drained", "2031-05-04T03:03:00Z")
