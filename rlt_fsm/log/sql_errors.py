"""What a database says, told as one clear sentence: the only place that knows SQLite's codes."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from rlt_fsm.errors import LogError, LogUnavailable, NotALog

_PRIMARY = 0xFF  # the low byte of an extended result code

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "another process keeps the log locked: try again when it is done",
    sqlite3.SQLITE_LOCKED: "another connection keeps the log locked: try again when it is done",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable",
    sqlite3.SQLITE_FULL: (
        "no space is left for the log: free some; every event committed before stays readable"
    ),
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the file and its folder may be used",
    sqlite3.SQLITE_PERM: "access is denied: check the permissions of the file and its folder",
    sqlite3.SQLITE_IOERR: "reading or writing the file failed: check the disk",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a copy of it",
}

_LEFT_IN_A_CHANGE = (
    "a process was killed while it changed the file: open it for writing once (EventLog.open, "
    "Engine.recover), which takes the change back"
)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn a refusal of the database into a LogError about the log `name`.

    A broken constraint is our mistake, not the caller's or the world's, and passes as it is.
    """
    try:
        yield
    except DBAPIError as error:
        if not isinstance(error.orig, sqlite3.DatabaseError):
            raise
        if isinstance(error.orig, sqlite3.IntegrityError):
            raise
        raise _log_error(name, error.orig) from error
    except UnicodeDecodeError as error:  # the driver's, over a text or the name of a table
        raise LogUnavailable(f"{name}: {_SENTENCES[sqlite3.SQLITE_CORRUPT]}") from error
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        raise _log_error(name, error) from error


def is_busy(error: sqlite3.DatabaseError) -> bool:
    """Whether somebody else has the lock."""
    return error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY


def _log_error(name: str, error: sqlite3.DatabaseError) -> LogError:
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if extended == sqlite3.SQLITE_READONLY_ROLLBACK:
        return LogUnavailable(f"{name}: {_LEFT_IN_A_CHANGE}")
    code = extended & _PRIMARY
    if code == sqlite3.SQLITE_NOTADB:
        return NotALog(f"{name}: this is not an event log (not an SQLite file)")
    sentence = _SENTENCES.get(code, f"the database failed: {error}")
    return LogUnavailable(f"{name}: {sentence}")
