"""Rows of the public names (contract §4) turned into the port's rows, for logs of other engines.

What stands in `event.data` goes into the columns that a log of our own has for it; the rest stays
JSON. Nothing is judged and nothing is repaired: what cannot be read is passed on as it stands.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from .port import EventCells

PublicRow = tuple[Any, ...]  # in the order of EVENT_COLUMNS

STATE_COLUMNS: Final = (
    "status_from", "status_to", "work_from", "work_to", "slot_from", "slot_to", "kv_from", "kv_to",
)  # fmt: skip
EVENT_COLUMNS: Final = (
    "seq", "step", "ticket", "t_ns", "request_id", "generation", "trigger", *STATE_COLUMNS,
    "blocks", "cause", "reason", "data",
)  # fmt: skip
SEQ: Final = 0
TICKET: Final = 2
REQUEST: Final = slice(4, 6)  # id, generation
MOVE: Final = slice(6, 7 + len(STATE_COLUMNS))  # trigger and states
TRIGGER: Final = 6
DATA: Final = len(EVENT_COLUMNS) - 1
UNKNOWN_MOVE: Final = -1  # of a row without a trigger: no log defines it


class RowData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `select` tells of its row."""

    token_start: int
    token_count: int
    row: int
    depth: int | None = None
    replay: bool | int = False


class OutputData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `output` tells."""

    idx: int
    token_id: int
    exit_depth: int
    logprob: float | int | None = None


class ExitData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `enqueue` tells where it goes to the coda."""

    exit_depth: int


_row = msgspec.json.Decoder(RowData).decode
_output = msgspec.json.Decoder(OutputData).decode
_exit = msgspec.json.Decoder(ExitData).decode


def _read(trigger: str, text: str) -> tuple[object, ...] | None:
    """Columns a … e and extra of a trigger whose `data` a log of our own keeps in columns."""
    match trigger:
        case "select":
            row = _row(text)
            replay = int(row.replay)
            return (row.row, row.token_start, row.token_count, row.depth, replay, None)
        case "output":
            output = _output(text)
            return (output.idx, output.token_id, output.exit_depth, output.logprob, None, None)
        case "enqueue":
            return (_exit(text).exit_depth, None, None, None, None, None)
        case _:
            return None


def cells(row: PublicRow, ref: int | None, move: int, data: object) -> EventCells:
    """A row of `event` as the port has it; `data` is the row's own, or found elsewhere."""
    seq, step, ticket, t_ns = row[:4]
    blocks, cause, reason = row[-4:-1]
    head = (seq, step, ticket, t_ns or 0, ref, move, blocks, cause, reason)
    text = data if data is None or isinstance(data, str) else str(data)
    # What cannot be read stays as it is: whoever reads the event says so.
    with suppress(msgspec.MsgspecError):
        if text is not None and (read := _read(row[TRIGGER], text)) is not None:
            return (*head, *read)
    return (*head, None, None, None, None, None, text)


def digest_of(text: object) -> bytes:
    """A digest in hex as bytes; what is none never equals one."""
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        return str(text).encode()
