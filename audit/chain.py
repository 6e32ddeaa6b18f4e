"""The digest chain in its documented canonical form, computed from raw rows.

digest(step) = SHA-256(digest(previous step) ‖ MessagePack of
[step, [seq], [ticket], ["id#generation" or nil], [move text], [blocks], [cause], [reason],
 [a], [b], [c], [d], [e], [extra or nil]]) over the step's events in order; 32 zero bytes precede the
first step. `t_ns` and run_id are not part of it.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from .reader import BLOCKS, MOVE, REF, SEQ, TICKET

GENESIS = bytes(32)
_encode = msgspec.msgpack.Encoder().encode


def step_digest(
    previous: bytes,
    step: int,
    columns: Sequence[Sequence[object]],
    names: Mapping[object, str | None],
    texts: Mapping[object, str],
) -> bytes:
    """The chain's 32 bytes after a step.

    `columns` are the columns of the step's events; `names` gives "id#generation" by ref, and None
    for None; `texts` gives a move's canonical text.
    """
    payload = [
        step,
        columns[SEQ],
        columns[TICKET],
        list(map(names.get, columns[REF])),
        list(map(texts.get, columns[MOVE])),
        *columns[BLOCKS:],
    ]
    return hashlib.sha256(previous + _encode(payload)).digest()
