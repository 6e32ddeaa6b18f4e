"""Where a run begins in a log, and what follows: told alike while its beginning is archived."""

from collections.abc import Iterator

from rlt_fsm.log.port import Checkpoint, EventColumns, LogReader


def from_beginning(
    reader: LogReader, run_id: int
) -> tuple[Checkpoint | None, Iterator[EventColumns]]:
    """The checkpoint with which a run begins (None: with its first event), and its events."""
    begin = reader.checkpoint(run_id)
    while True:
        chunks = _events_after(reader, run_id, begin)
        now = reader.checkpoint(run_id)
        if now == begin:
            return begin, chunks
        begin = now  # it was archived between the two


def _events_after(
    reader: LogReader, run_id: int, begin: Checkpoint | None
) -> Iterator[EventColumns]:
    return reader.columns(run_id, 0 if begin is None else begin.seq)
