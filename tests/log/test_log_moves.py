"""Moves in a file that another revision wrote: its numbers stay, ours are mapped onto them."""

import sqlite3

import pytest
from log_rows import HEADER, MOVE_TEXTS, REQUESTS, Script, move

from rlt_fsm.log.digest import FIRST_DIGEST, move_texts, request_names, step_digest
from rlt_fsm.log.event_log import EventLog
from rlt_fsm.log.move_rows import MOVE_ROWS, edges, match

ADMIT = "admit|WAITING>ACTIVE|IDLE>QUEUED:PROMPT_ATOMIC|FREE>HELD|NONE>RESIDENT"


def _events():
    script = Script()
    script.add("submit|NULL>WAITING|||", step=0, ref=0, extra="{}")
    script.add(ADMIT, step=0, ref=0, extra='{"take":[1]}')
    script.add("grow", step=0, ref=0)
    return script.events


def _numbered_otherwise(path, *, drop):
    """A log whose moves have other numbers than ours, lack one of ours and have one we lack."""
    with EventLog.open(path) as log:
        log.begin_run(HEADER)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM move WHERE move_id = ?", (move(drop),))
    connection.execute("DELETE FROM move_edge WHERE move_id = ?", (move(drop),))
    for table in ("move", "move_edge"):
        connection.execute(f"UPDATE {table} SET move_id = -move_id - 1")
        connection.execute(f"UPDATE {table} SET move_id = -move_id")
    connection.execute("INSERT INTO move (move_id, \"trigger\") VALUES (0, 'teleport')")
    connection.commit()
    connection.close()


def test_moves_that_are_ours_already_need_no_mapping():
    assert match(MOVE_ROWS) == (None, [])


def test_an_empty_log_gets_all_our_moves_under_our_numbers():
    assert match([]) == (None, list(MOVE_ROWS))


def test_missing_moves_get_the_next_free_numbers():
    known = [row._replace(move=row.move + 5) for row in MOVE_ROWS[1:]]
    numbers, missing = match(known)
    assert missing == [MOVE_ROWS[0]._replace(move=len(MOVE_ROWS) + 5)]
    assert numbers == [len(MOVE_ROWS) + 5, *range(6, len(MOVE_ROWS) + 5)]


def test_a_move_tells_which_machines_it_moves():
    assert edges(MOVE_ROWS[move(ADMIT)]) == [
        ("status", "WAITING", "ACTIVE"),
        ("work", "IDLE", "QUEUED:PROMPT_ATOMIC"),
        ("slot", "FREE", "HELD"),
        ("kv", "NONE", "RESIDENT"),
    ]
    assert edges(MOVE_ROWS[move("submit|NULL>WAITING|||")]) == [("status", None, "WAITING")]
    assert edges(MOVE_ROWS[move("retire|FINISHED>NULL|||")]) == [("status", "FINISHED", None)]
    assert edges(MOVE_ROWS[move("grow")]) == []


@pytest.mark.parametrize("drop", [ADMIT, "grow", "recover"])
def test_a_run_in_a_file_of_another_revision_means_what_it_says(log_path, drop):
    _numbered_otherwise(log_path, drop=drop)
    with EventLog.open(log_path) as log:
        writer = log.begin_run(HEADER)
        writer.write([tuple(row) for row in _events()], REQUESTS)
        writer.commit()
        reader = log.reader()
        texts = move_texts(reader.moves(writer.run_id))
        events = list(reader.events(writer.run_id))
    assert set(texts) - {"?"} == {"teleport||||", *MOVE_TEXTS}
    assert len(set(texts)) == len(texts)
    assert [texts[row[5]] for row in events] == [MOVE_TEXTS[row.move] for row in _events()]
    assert [row[:5] + row[6:] for row in events] == [row[:5] + row[6:] for row in _events()]
    names = request_names(REQUESTS)
    assert step_digest(FIRST_DIGEST, 0, events, names, texts) == step_digest(
        FIRST_DIGEST, 0, _events(), names, MOVE_TEXTS
    )


def test_the_views_show_a_mapped_run_like_any_other(log_path):
    _numbered_otherwise(log_path, drop=ADMIT)
    with EventLog.open(log_path) as log:
        writer = log.begin_run(HEADER)
        writer.write(_events(), REQUESTS)
        writer.commit()
    connection = sqlite3.connect(log_path)
    rows = connection.execute(
        'SELECT seq, machine, "trigger", source, dest FROM transition WHERE run_id = 2'
    ).fetchall()
    connection.close()
    assert rows == [
        (1, "status", "submit", None, "WAITING"),
        (2, "status", "admit", "WAITING", "ACTIVE"),
        (2, "work", "admit", "IDLE", "QUEUED:PROMPT_ATOMIC"),
        (2, "slot", "admit", "FREE", "HELD"),
        (2, "kv", "admit", "NONE", "RESIDENT"),
    ]


def test_moves_are_added_once(log_path):
    for _ in range(2):
        with EventLog.open(log_path) as log:
            log.begin_run(HEADER)
    connection = sqlite3.connect(log_path)
    ((count,),) = connection.execute("SELECT count(*) FROM move").fetchall()
    connection.close()
    assert count == len(MOVE_ROWS)
