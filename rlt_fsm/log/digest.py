"""The digest chain: one number that names what a run did, step by step.

A step's digest is SHA-256 over the previous digest (32 zero bytes before the first step) and the
MessagePack of the step's number and its events, column by column in the order of `seq`:

    [step, [seq], [ticket], [request as "id#generation" or nil], [move text], [blocks], [cause],
     [reason], [a], [b], [c], [d], [e], [extra]]

`t_ns`, the run's number and whatever names a machine, path or revision stay out, and moves go in by
their texts, so that two logs of the same behaviour have the same digests. Values must be those that
come back from the log: whole numbers as int (never bool), real ones as float (never NaN).
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from rlt_fsm.machines import NULL

from .port import EventCells, EventRow, MoveRow, RequestRow

FIRST_DIGEST: Final = bytes(32)  # what stands before the first step

_COLUMNS: Final = len(EventRow._fields)
_encode: Final = msgspec.msgpack.Encoder().encode


def step_digest(
    previous: bytes,
    step: int,
    events: Sequence[EventCells],
    names: Sequence[str] | Mapping[int, str],
    move_texts: Sequence[str],
) -> bytes:
    """The chain's 32 bytes after a step.

    `names[ref]` is the request's `id#generation` and `move_texts[move]` the move's text, both by
    the numbers that stand in `events` (see `request_names` and `move_texts`).
    """
    columns = zip(*events, strict=True) if events else ((),) * _COLUMNS
    seq, _step, ticket, _t_ns, ref, move, *plain = columns
    head = (
        step,
        seq,
        ticket,
        [None if number is None else names[number] for number in ref],
        [move_texts[number] for number in move],
    )
    return sha256(previous + _encode((*head, *plain))).digest()


def request_names(requests: Iterable[RequestRow]) -> list[str]:
    """`id#generation` of every request of a run, by ref; a ref without a row is `?`."""
    rows = list(requests)
    names = ["?"] * (max((row.ref for row in rows), default=-1) + 1)
    for row in rows:
        names[row.ref] = f"{row.request_id}#{row.generation}"
    return names


def move_texts(moves: Iterable[MoveRow]) -> list[str]:
    """The text of every move of a log, by number: `trigger|status|work|slot|kv`.

    A machine that moves reads `SOURCE>DEST`, with `NULL` for the state before submit and after
    retire; one that does not is empty. The same text as `rlt_fsm.moves.describe`.
    """
    rows = list(moves)
    texts = ["?"] * (max((row.move for row in rows), default=-1) + 1)
    for row in rows:
        edges = zip(row[2::2], row[3::2], strict=True)
        texts[row.move] = "|".join((row.trigger, *(_edge_text(*edge) for edge in edges)))
    return texts


def _edge_text(source: str | None, dest: str | None) -> str:
    if source is None and dest is None:
        return ""
    return f"{source or NULL}>{dest or NULL}"
