"""The digest chain in its documented canonical form, computed from raw rows.

digest(step) = SHA-256(digest(previous step) ‖ MessagePack of
[step, [seq], [ticket], ["id#generation" or nil], [move text], [blocks], [cause], [reason],
 [a], [b], [c], [d], [e], [extra or nil]]) over the step's events in order; before the first step
stand 32 zero bytes. `t_ns` and run_id are not part of it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from .reader import BLOCKS, MOVE, REF, SEQ, TICKET

GENESIS = bytes(32)
_encode = msgspec.msgpack.Encoder().encode


def step_digest(
    previous: bytes,
    step: int,
    columns: Sequence[Sequence[object]],
    names: Mapping[int | None, str | None],
    texts: Mapping[int, str],
) -> bytes:
    """The chain's 32 bytes after a step.

    `columns` are the columns of the step's events; `names` gives "id#generation" by ref, and None
    for None; `texts` gives a move's canonical text.
    """
    refs = cast("Sequence[int | None]", columns[REF])
    moves = cast("Sequence[int]", columns[MOVE])
    payload = [
        step,
        columns[SEQ],
        columns[TICKET],
        list(map(names.get, refs)),
        list(map(texts.get, moves)),
        *columns[BLOCKS:],
    ]
    return hashlib.sha256(previous + _encode(payload)).digest()
