"""What a command does when its results cannot be written: for both command lines, and only them.

Status 1 is an answer ("no"), so that no broken output may end with it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

BROKEN_PIPE, UNWRITABLE = 141, 2  # 128 + SIGPIPE, as of a program that the signal ends; usage


class _Results:
    """stdout, but for its failures: they end the command."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _failure_ends(self._stream):
            return self._stream.write(text)

    def flush(self) -> None:
        with _failure_ends(self._stream):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def guarded_stdout() -> Iterator[None]:
    """Whoever reads no further ends the command quietly (141), a full disk with a sentence (2)."""
    stdout = sys.stdout
    if sys.__stdout__ is None:  # the caller closed it: nothing is asked for
        yield
        return
    sys.stdout = _Results(stdout)
    try:
        yield
    finally:
        sys.stdout = stdout


@contextmanager
def _failure_ends(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # what is left goes nowhere
        if isinstance(error, BrokenPipeError):
            raise SystemExit(BROKEN_PIPE) from None
        print(f"error: the result cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201  # the only place
        raise SystemExit(UNWRITABLE) from None
