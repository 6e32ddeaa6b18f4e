"""Values of other libraries in Python's own kinds, which a log and a codec can hold.

Numbers of numpy or torch become int and float. What is no number, text or bool is named by its
class, so that whoever checks types refuses it, and can say and record what it was.
"""

import operator
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from numbers import Integral, Real

_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1  # what JSON readers agree on
_OWN = (int, float, bool, type(None))


def listed(value: object) -> object:
    """Anything that lists values in an order as a tuple of plain ones; else the plain value."""
    if type(value) in _OWN or isinstance(value, str | Mapping | AbstractSet):
        return plain(value)
    if not isinstance(value, Iterable):
        return plain(value)
    try:
        return tuple(map(plain, value))
    except TypeError:  # says that it can be iterated, and cannot: an array without dimensions
        return plain(value)


def plain(value: object) -> object:
    """A number, text, bool or None as Python's own; anything else by its class."""
    if type(value) is int and _LEAST_INT <= value <= _MOST_INT:
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Real) and not isinstance(value, Integral):
        return float(value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # it says itself whether it can
    except TypeError:
        kind = type(value)
        return f"<{kind.__module__}.{kind.__name__}>"
    return number if _LEAST_INT <= number <= _MOST_INT else f"<int of {number.bit_length()} bits>"


def text(value: str) -> str:
    """Half of a surrogate pair, which no UTF-8 text can hold, becomes its escape."""
    return value.encode("utf-8", "backslashreplace").decode()
