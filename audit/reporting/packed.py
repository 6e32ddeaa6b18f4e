"""Columns of whole numbers, packed for the page: smallest type, deflated, as Base64 text.

`page/data.js` unpacks them again; the two must agree.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

_TYPES: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float64")
_DEFLATE_BARE: Final = -15  # without zlib's header: what the browser calls deflate-raw


class Column(msgspec.Struct, frozen=True):
    """How a column lies in its table: its type, and whether each value is told as a difference.

    `is_wide` values do not fit 32 bits once the differences are summed up.
    """

    name: str
    type: str
    is_delta: bool
    is_wide: bool


class Packed(msgspec.Struct, frozen=True):
    """A table: its columns one after the other in `text`, each of `length` values."""

    length: int
    columns: list[Column]
    text: str


def pack(table: Mapping[str, Sequence[int] | NDArray[np.int64]]) -> Packed:
    """Pack columns of equal length; what grows slowly is told by its differences."""
    lengths = {len(values) for values in table.values()}
    assert len(lengths) <= 1, f"columns of {sorted(lengths)} values"
    columns, parts = [], []
    for name, values in table.items():
        array = np.asarray(values, dtype=np.int64)
        differences = np.diff(array, prepend=0)
        is_delta = array.size > 1 and _spread(differences[1:]) < _spread(array)
        told = differences if is_delta else array
        kind = next((kind for kind in _TYPES[:-1] if _holds(kind, told)), _TYPES[-1])
        columns.append(Column(name, kind, is_delta, is_wide=not _holds("int32", array)))
        parts.append(told.astype(np.dtype(kind).newbyteorder("<")).tobytes())
    return Packed(max(lengths, default=0), columns, deflated(b"".join(parts)))


def deflated(content: bytes) -> str:
    """Bytes as Base64 of their deflated form."""
    squeeze = zlib.compressobj(level=9, wbits=_DEFLATE_BARE)
    return base64.b64encode(squeeze.compress(content) + squeeze.flush()).decode("ascii")


def _spread(values: NDArray[np.int64]) -> int:
    return int(np.abs(values).max(initial=0))


def _holds(kind: str, values: NDArray[np.int64]) -> bool:
    room = np.iinfo(kind)
    return bool(values.min(initial=0) >= room.min and values.max(initial=0) <= room.max)
