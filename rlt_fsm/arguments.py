"""What a caller gave to a constructor or a function of the public API, before anything is done.

Each check returns the value in Python's own kind, or says in one sentence what it must be. What a
request carries is checked at the door (`door.py`), what a config holds in `config.py`.
"""

import operator
import os
from collections.abc import Sequence

from .errors import ConfigError
from .plain import plain

LONGEST_NAME = 255  # bytes of a file's name, on every usual file system
MOST_WHOLE = 2**63 - 1  # what every database and device holds


def whole(name: str, value: object, *, least: int, most: int = MOST_WHOLE) -> int:
    """A whole number in [least, most]; numbers of numpy and torch are some.

    Raises:
        ConfigError: it is none.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # it says itself
    except (TypeError, ValueError):  # the latter of an array with several elements
        number = None
    if number is None or not least <= number <= most:
        bounds = f"from {least:,} to {most:,}" if most < MOST_WHOLE else f"of {least:,} or more"
        raise ConfigError(f"{name}={shown(value)}: must be a whole number {bounds}")
    return number


def seconds(name: str, value: float) -> float:
    """A finite time of 0 or more.

    Raises:
        ConfigError: it is none.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_WHOLE:  # NaN is not within anything
        raise ConfigError(f"{name}={shown(value)}: must be a number of seconds, 0 or more")
    return float(value)


def yes_or_no(name: str, value: object) -> bool:
    """True or False.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={shown(value)}: must be True or False")
    return value


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """One of some words.

    Raises:
        ConfigError: it is another.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name}={shown(value)}: must be one of {', '.join(choices)}")
    return value


def of_kind(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """An object of a class, or of one of several; `what` names it in the sentence.

    Raises:
        ConfigError: it is of another.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name}={shown(value)}: must be {what}")


def function(name: str, value: object) -> None:
    """Something to call; nothing is known of its own arguments.

    Raises:
        ConfigError: it is something else.
    """
    if not callable(value):
        raise ConfigError(f"{name}={shown(value)}: must be a function")


def function_or_none(name: str, value: object) -> None:
    """Something to call, or nothing.

    Raises:
        ConfigError: it is something else.
    """
    if value is not None:
        function(name, value)


def path_text(name: str, value: object) -> str:
    """A path as text that a file can have as its name.

    Raises:
        ConfigError: it is none.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or plain(text) != text:
        raise ConfigError(f"{name}={shown(value)}: must be a path")
    if max(len(part.encode()) for part in text.split("/")) > LONGEST_NAME:
        raise ConfigError(
            f"{name}: {text[:20]}… has {len(text):,} characters: no file has such a name"
        )
    return text


def shown(value: object) -> str:
    """A value in a sentence: numbers and texts as they are, anything else by its class."""
    return repr(plain(value))
