"""The `event` view as lines of JSON: one object for each event, `data` as the object that it is."""

from collections.abc import Callable
from typing import BinaryIO, Final

import msgspec

from rlt_fsm.log.view_columns import VIEW_COLUMNS
from rlt_fsm.log.view_reader import ViewReader

COLUMNS: Final = tuple(VIEW_COLUMNS["event"])
_DATA: Final = COLUMNS.index("data")
_LINES_AT_ONCE: Final = 1024

_raw = msgspec.json.Decoder(msgspec.Raw).decode


def export_jsonl(
    views: ViewReader,
    run_id: int,
    out: BinaryIO,
    *,
    told: Callable[[int], None] = lambda _events: None,
) -> int:
    """Write a run's events in order; how many they are. `told` is called now and then with that."""
    encode = msgspec.json.Encoder().encode_lines
    lines: list[dict[str, object]] = []
    done = 0
    for row in views.rows("event", run_id):
        event = dict(zip(COLUMNS, row, strict=True))
        event["data"] = _as_json(row[_DATA])
        lines.append(event)
        if len(lines) == _LINES_AT_ONCE:
            out.write(encode(lines))
            done += len(lines)
            lines.clear()
            told(done)
    out.write(encode(lines))
    return done + len(lines)


def _as_json(data: object) -> object:
    """The JSON text as JSON; another engine's text that is none stays a text."""
    if not isinstance(data, str):
        return data
    try:
        return _raw(data) if "\n" not in data else msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return data
