"""A new file that appears under its name once it is whole, and never in place of another."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from rlt_fsm.errors import LogUnavailable

# What a file system says that knows no second name for a file.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A new empty file in the folder of `path`, this caller's alone; it goes away in the end.

    Raises:
        OSError: it cannot be made.
    """
    part = path.with_name(f".{token_hex(12)}.part")
    part.touch(exist_ok=False)
    try:
        yield part
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def whole_new_file(path: Path) -> Iterator[Path]:
    """Another path to write to; the file is on the disk and named `path` at the end, or goes away.

    Raises:
        LogUnavailable: there is a file of that name, by then at the latest, or none can be written.
    """
    try:
        if os.path.lexists(path):
            raise _there_already(path)
        with beside(path) as part:
            yield part
            written = part.stat()
            _sync(part)
            _publish(part, path)
            if not os.path.samestat(path.stat(), written):
                raise LogUnavailable(f"{path}: another process put a file in its place: try again")
        _sync(path.parent)
    except OSError as error:
        why = error.strerror or error
        raise LogUnavailable(f"{path}: cannot be written ({why}): give another path") from error


def _publish(part: Path, path: Path) -> None:
    """Name a file `path`, which no file is named."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise _there_already(path) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            path.touch(exist_ok=False)  # from here on the name is ours
        except FileExistsError as taken:
            raise _there_already(path) from taken
        part.replace(path)


def _there_already(path: Path) -> LogUnavailable:
    return LogUnavailable(f"{path}: there is such a file already: give another name")


def _sync(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
