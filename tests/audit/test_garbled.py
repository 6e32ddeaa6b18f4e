"""However garbled the rows, an audit ends with a verdict, never with a traceback."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from reseal import Event, Tampered
from typer.testing import CliRunner

import audit
from audit.cli import app
from rlt_fsm import LogError

NUMBERS = (None, -1, 0, 1, 7, 2**40)
TEXTS = (
    *(None, "", "{", "[]", "{}", '"x"', '{"take": [1, 1, -5]}', '{"drop": [3]}'),
    *('{"params": 3}', '{"state_row": 99}', '{"take": "all"}'),
)
STATES = (None, "X", "WAITING", "ACTIVE", "TAKEN:DECODE_CODA", "QUEUED:", "HELD")


def _garble_cell(event: Event, random: Random) -> None:
    columns = ("ticket", "ref", "move", "blocks", "cause", "a", "b", "c", "d", "e", "extra", "step")
    column = random.choice(columns)
    value = random.choice(TEXTS if column == "extra" else NUMBERS)
    if column in ("move", "step") and value is None:
        value = 0
    setattr(event, column, 1.5 if column == "d" and random.random() < 0.5 else value)


def _garble(log: Tampered, random: Random) -> None:
    event = random.choice(log.events)
    match random.randrange(8):
        case 0:
            log.drop(event)
        case 1:
            log.duplicate(event)
        case 2:
            log.swap(event, random.choice(log.events))
        case 3:
            log.requests.pop(random.randrange(len(log.requests)))
        case 4:
            step = random.choice(log.steps)
            setattr(
                step, random.choice(["first_seq", "last_seq", "ticket"]), random.randint(0, 200)
            )
        case 5:
            columns = log.moves.get(event.move, ["x"] * 9)
            columns[random.randrange(1, 9)] = random.choice(STATES)
        case _:
            _garble_cell(event, random)


@pytest.mark.parametrize("seed", range(120))
def test_any_garbled_log_gets_a_verdict(tampered: Tampered, seed: int) -> None:
    random = Random(seed)
    for _ in range(random.randint(1, 5)):
        _garble(tampered, random)
    for number, event in enumerate(tampered.events, start=1):
        event.seq = number
    report = audit.verify(tampered.write())
    assert report.verdict in ("findings", "inconclusive")
    assert not report.ok


def test_a_header_without_its_config_cannot_be_read(real_log: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(real_log, tmp_path / "headless.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE run_log SET config = ''")
    with pytest.raises(LogError, match="its config cannot be read"):
        audit.verify(path)


READERS = (
    ["verify"],
    ["verify", "--json"],
    ["state", "--step", "3"],
    ["timeline", "--request", "r1"],
    ["explain", "--request", "r1"],
    ["replay"],
)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_bytes_that_are_flipped_never_end_a_command_with_a_traceback(
    real_log: Path, tmp_path: Path, command: list[str]
) -> None:
    """What is damaged is told in a sentence (2) or found (1), whichever byte it is."""
    whole = real_log.read_bytes()
    path = tmp_path / "flipped.db"
    for seed in range(60):
        random = Random(seed)
        damaged = bytearray(whole)
        for _ in range(random.choice((1, 5, 50))):
            damaged[random.randrange(len(damaged))] = random.choice((0, 255, random.randrange(256)))
        path.write_bytes(damaged)
        out = ["-o", str(tmp_path / f"{seed}.db")] if command == ["replay"] else []
        done = CliRunner().invoke(app, [command[0], str(path), *command[1:], *out])
        assert done.exception is None or isinstance(done.exception, SystemExit), seed
        assert done.exit_code in (0, 1, 2, 3), seed
        if done.exit_code == 2:
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_value_of_another_type_than_its_columns_is_damage(real_log: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(real_log, tmp_path / "retyped.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema = ON")  # the only way past a STRICT table
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'cause INTEGER', 'cause ANY')"
            " WHERE name = 'event_log'"
        )
        database.execute("PRAGMA writable_schema = RESET")
        database.execute("UPDATE event_log SET cause = 'x' WHERE key & 1023 = 5")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'cause ANY', 'cause INTEGER')"
            " WHERE name = 'event_log'"
        )
    with pytest.raises(LogError, match=r"retyped\.db: the file is damaged .*event_log\.cause"):
        audit.verify(path)
