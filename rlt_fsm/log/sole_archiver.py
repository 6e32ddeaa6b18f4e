"""Lets one process at a time go on archiving a log: a lock on a file beside it.

The system lets go of the lock when its holder ends, however it ends; what stays of a killed one is
an empty file that the next takes over. A single archive does not ask for it: that two of them lose
nothing is `archiving.py`'s to see to.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_fsm.errors import LogUnavailable


@contextmanager
def sole_archiver(log: Path) -> Iterator[None]:
    """Be the only one who goes on archiving a log.

    Raises:
        LogUnavailable: another process does, or no file can be made beside the log.
    """
    path = log.with_name(f"{log.name}-archiving")
    try:
        handle = _locked(path)
    except BlockingIOError as error:
        raise LogUnavailable(
            f"{log}: another process archives it and goes on doing so: one is enough"
        ) from error
    except OSError as error:
        why = error.strerror or error
        raise LogUnavailable(f"{path}: cannot be made ({why}): make the folder writable") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock goes: nobody else has it then
        os.close(handle)


def _locked(path: Path) -> int:
    """The locked file, which is the one of that name still."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder took it away in between: make a new one
