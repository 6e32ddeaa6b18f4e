"""Whether a log file is there yet, and whether anybody has it open: for who follows a run.

Both only look. A log of ours is in WAL mode while it is open for writing, and whoever has one open
then holds a lock on its `-shm` file, which the system lets go when the process ends, however it
ends. The lock is looked up in the system's list: to open that file here could cost a connection of
this very process its own locks.
"""

import sqlite3
from pathlib import Path
from typing import Final

from rlt_fsm.errors import NotALog

from .location import locate

_LOCKS: Final = Path("/proc/locks")  # Linux
_OPEN_BYTE: Final = "128"  # of `-shm`: what SQLite locks for as long as a database is open


def holds_something(url_or_path: str | Path) -> bool:
    """Whether the file exists and is not empty, be it a log or not.

    Raises:
        NotALog: a folder, which no waiting makes a log.
    """
    place = locate(url_or_path, read_only=True)
    if place.path.is_dir():
        raise NotALog(f"{place.name}: this is a folder: give the path of a log file")
    if not place.path.exists():
        return False
    try:
        connection = sqlite3.connect(f"{place.url.database}?mode=ro", uri=True)
        try:
            ((objects,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return True  # whoever opens it will say what it is
    return bool(objects)


def is_in_use(url_or_path: str | Path) -> bool | None:
    """Whether any process has the log open in WAL mode; None where that cannot be told.

    Ask while no reader of your own is open: it counts.
    """
    path = locate(url_or_path, read_only=True).path
    if path.is_dir():
        return False
    try:
        locks = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return None
    try:
        inode = path.with_name(f"{path.name}-shm").stat().st_ino
    except OSError:
        return False
    # 1: POSIX  ADVISORY  READ 9728 fe:00:2146362 128 128
    held = (line.split()[-3:] for line in locks.splitlines() if " POSIX " in f" {line} ")
    return any(
        place.rpartition(":")[2] == str(inode) and first == _OPEN_BYTE for place, first, _ in held
    )
