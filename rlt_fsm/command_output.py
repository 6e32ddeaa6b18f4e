"""How a command ends and what it writes: exit statuses, mistakes as sentences, colours, JSON.

For both command lines, and only them. Status 1 is an answer ("no"), so that no broken output and no
interrupt may end with it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, Literal, TextIO

import msgspec
import typer

from .errors import RltError


class Status(IntEnum):
    """Exit statuses (contract §3), and what a shell makes of an interrupt."""

    WELL = 0
    NO = 1  # findings, a difference, a failed expectation
    USAGE = 2  # the input cannot be used
    INCONCLUSIVE = 3
    INTERRUPTED = 130


BROKEN_PIPE: Final = 141  # 128 + SIGPIPE, as of a program that the signal ends
Paint = Literal["red", "green", "yellow"]
_PAINT_OF: Final[dict[Status, Paint]] = {Status.WELL: "green", Status.NO: "red"}


def say_mistake(sentence: str) -> None:
    """`error: …` on stderr."""
    typer.echo(f"{painted('error:', 'red', sys.stderr)} {sentence}", err=True)


@contextmanager
def mistakes_in_one_sentence(interrupted: str = "nothing was written") -> Iterator[None]:
    """What a user can put right ends with a sentence and status 2, never with a traceback.

    `interrupted` says what Ctrl-C leaves behind; its status is 130.
    """
    try:
        yield
    except RltError as error:
        say_mistake(str(error))
        raise typer.Exit(Status.USAGE) from error
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {interrupted}", err=True)
        raise typer.Exit(Status.INTERRUPTED) from None


def print_json(value: object) -> None:
    """A result for machines, on stdout."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_text(text: str, status: Status) -> None:
    """A result for people, on stdout; its last line, the verdict, has the colour of its status."""
    before, newline, last = text.rpartition("\n")
    typer.echo(f"{before}{newline}{painted(last, _PAINT_OF.get(status, 'yellow'))}")


def has_colors(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours and nobody asked for none (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, paint: Paint, stream: TextIO | None = None) -> str:
    """Text in a colour where the stream (stdout) shows colours, else as it is."""
    stream = sys.stdout if stream is None else stream
    return typer.style(text, fg=paint) if has_colors(stream) else text


# ---- results that cannot be written --------------------------------------------------------------


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
        say_mistake(f"the result cannot be written: {error.strerror}")
        raise SystemExit(Status.USAGE) from None
