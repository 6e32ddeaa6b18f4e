"""Where an export is written: a file that appears once it is whole, a folder of such, or stdout."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from rlt_fsm.errors import LogUnavailable
from rlt_fsm.log.location import locate
from rlt_fsm.log.new_file import beside

STDOUT: Final = "-"


@contextmanager
def written(out: str) -> Iterator[BinaryIO]:
    """What takes the bytes of `out`; where it fails, the file that was there stays.

    Raises:
        LogUnavailable: it cannot be written.
    """
    if out == STDOUT:
        yield cast("BinaryIO", _Stdout())
        return
    with whole_file(Path(out)) as path, path.open("wb") as file:
        yield file


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Another path to write to, which becomes `path` at the end, or goes away.

    Raises:
        LogUnavailable: it cannot be written.
    """
    with named(path):
        if path.is_dir():
            raise LogUnavailable(f"{path}: this is a folder: give the path of a file")
        if path.exists() and not path.is_file():  # a pipe, a device: nothing to keep
            yield path
            return
        with beside(path) as part:
            yield part
            part.replace(path)


@contextmanager
def named(out: Path) -> Iterator[None]:
    """A refusal of the system as a sentence about `out`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise LogUnavailable(f"{out}: cannot be written ({why}): give another path") from error


class _Stdout:
    """Standard output for bytes of UTF-8; a closed one ends the command as for every command."""

    def write(self, data: bytes) -> int:
        return sys.stdout.write(data.decode())


def refuse_the_log(out: str, db: str) -> None:
    """An export never takes the place of its log.

    Raises:
        LogUnavailable: it would.
    """
    with suppress(OSError):
        if Path(out).samefile(locate(db, read_only=True).path):
            raise LogUnavailable(f"{out}: this is the log itself: give another path")
