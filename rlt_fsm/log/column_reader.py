"""A chunk of events as one row of JSON lists, one for each column, and those lists decoded.

To hand 2,048 rows of 15 cells to Python costs twice what it costs to build and to read such lists.
What they cannot hold exactly (real numbers, values of a type that the column does not have) is not
decoded: the caller reads rows instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from .port import EventColumns, EventRow

_TEXTS: Final = ("reason", "extra")
_TIME: Final = EventRow._fields.index("t_ns")  # no reader of columns asks for it

# `d` is the one column that may hold real numbers.
COLUMNS: Final = f"""SELECT
    count(*), max(typeof(d) = 'real'), json_group_array(key - ?),
    {", ".join(f"json_group_array({name})" for name in EventRow._fields[1:] if name != "t_ns")}
FROM (
    SELECT * FROM event_log WHERE key > ? AND key <= ? ORDER BY key LIMIT ?
)"""  # noqa: S608  # fixed names

_numbers = msgspec.json.Decoder(list[int | None]).decode
_strings = msgspec.json.Decoder(list[str | None]).decode
_DECODERS: Final[list[Callable[[str], list[Any]]]] = [
    _strings if name in _TEXTS else _numbers for name in EventRow._fields if name != "t_ns"
]


def decoded(row: Sequence[Any] | None) -> EventColumns | None:
    """The columns of a row of COLUMNS; None where they must be read as rows."""
    if row is None:
        return None
    count, has_reals, *texts = row
    if has_reals:
        return None
    try:
        columns = [decode(text) for decode, text in zip(_DECODERS, texts, strict=True)]
    except (msgspec.MsgspecError, UnicodeError):
        return None
    columns.insert(_TIME, [0] * count)
    return columns
