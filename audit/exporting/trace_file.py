"""Writes the Trace Event Format (JSON) that ui.perfetto.dev and chrome://tracing open.

Only the form lives here: processes and threads with names, slices (`B` … `E`) that nest in their
thread, instants, counters, flows. Which lanes there are is `trace.py`'s. Times are in microseconds
with the nanoseconds kept, and never fall.
"""

from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

import msgspec

_EVENTS_AT_ONCE: Final = 1024

Args = Mapping[str, object]


class Lane(NamedTuple):
    """One thread of the trace. `thread` is a number of its own in the whole trace."""

    process: int
    thread: int


class TraceFile:
    """Appends events to a trace; `close` ends what is still open and the file.

    Args:
        out: takes the bytes.
        about: what the trace is of, for its reader.
    """

    def __init__(self, out: BinaryIO, about: Args) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._buffer: list[bytes] = []
        self._depth: dict[Lane, int] = {}  # slices that are open
        self._ts: float = 0.0
        self._is_first = True
        self._flows = 0
        self.events = 0
        head = self._encode({"displayTimeUnit": "ms", "otherData": about})
        out.write(head[:-1] + b',"traceEvents":[\n')

    # ---- names -------------------------------------------------------------------------------

    def name_process(self, process: int, name: str) -> None:
        """Name a group of lanes; groups stand in the order of their numbers."""
        at = {"ph": "M", "pid": process, "tid": 0, "ts": 0}
        self._write({**at, "name": "process_name", "args": {"name": name}})
        self._write({**at, "name": "process_sort_index", "args": {"sort_index": process}})

    def name_lane(self, lane: Lane, name: str) -> None:
        """Name a lane; lanes stand in the order of their numbers."""
        at = {"ph": "M", "pid": lane.process, "tid": lane.thread, "ts": 0}
        self._write({**at, "name": "thread_name", "args": {"name": name}})
        self._write({**at, "name": "thread_sort_index", "args": {"sort_index": lane.thread}})

    # ---- what happened -----------------------------------------------------------------------

    def at(self, nanoseconds: int) -> None:
        """What follows happened then; a time before the last one counts as that."""
        self._ts = max(self._ts, nanoseconds / 1000)

    def begin(self, lane: Lane, name: str, kind: str, args: Args) -> None:
        """A slice begins, inside the one that is open in its lane."""
        self._depth[lane] = self._depth.get(lane, 0) + 1
        self._event("B", lane, name=name, cat=kind, args=args)

    def end(self, lane: Lane, args: Args | None = None) -> None:
        """The innermost open slice of a lane ends."""
        assert self._depth.get(lane, 0) > 0, f"no slice is open in {lane}"
        self._depth[lane] -= 1
        if args:
            self._event("E", lane, args=args)
        else:
            self._event("E", lane)

    def instant(self, lane: Lane, name: str, kind: str, args: Args) -> None:
        """Something that takes no time."""
        self._event("i", lane, name=name, cat=kind, s="t", args=args)

    def counter(self, lane: Lane, name: str, values: Mapping[str, int]) -> None:
        """The values of a counter from now on."""
        self._event("C", lane, name=name, args=values)

    def arrow(self, source: Lane, dest: Lane, name: str) -> None:
        """An arrow from the open slice of one lane to that of another."""
        self._flows += 1
        self._event("s", source, name=name, cat="flow", id=self._flows)
        self._event("f", dest, name=name, cat="flow", id=self._flows, bp="e")

    def _event(self, phase: str, lane: Lane, **fields: object) -> None:
        self._write(
            {"ph": phase, "ts": self._ts, "pid": lane.process, "tid": lane.thread, **fields}
        )

    # ---- the file ----------------------------------------------------------------------------

    def _write(self, event: Mapping[str, object]) -> None:
        self._buffer.append(self._encode(event))
        self.events += 1
        if len(self._buffer) >= _EVENTS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        text = b",\n".join(self._buffer)
        self._out.write(text if self._is_first else b",\n" + text)
        self._is_first = False
        self._buffer.clear()

    def close(self) -> None:
        """End every slice that is open, and the file."""
        for lane, depth in self._depth.items():
            for _ in range(depth):
                self._event("E", lane)
        self._flush()
        self._out.write(b"\n]}\n")
