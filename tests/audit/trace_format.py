"""The rules of the Trace Event Format, as far as our traces use it, and what a trace shows.

Written from the format's description alone: nothing of the exporter is used here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

Event = dict[str, Any]

NEEDED = {
    "M": {"name", "args"},
    "B": {"name", "cat", "args"},
    "E": set(),
    "i": {"name", "cat", "s", "args"},
    "C": {"name", "args"},
    "s": {"name", "cat", "id"},
    "f": {"name", "cat", "id", "bp"},
}


class Slice(NamedTuple):
    """A slice of a lane; `parent` is the name of the one around it."""

    lane: str
    name: str
    kind: str
    start: float
    end: float
    parent: str | None
    args: dict[str, Any]


class Shown(NamedTuple):
    """What a viewer shows of a trace, lanes by name."""

    slices: list[Slice]
    instants: list[tuple[str, Event]]
    arrows: list[tuple[Slice, Slice]]
    counters: list[Event]
    lanes: dict[str, list[str]]  # by process


def shown(trace: dict[str, Any]) -> Shown:
    """Check every rule of the format and tell what is to be seen."""
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    events: list[Event] = trace["traceEvents"]
    for event in events:
        _check(event)
    timed = [event for event in events if event["ph"] != "M"]
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed), "written in order of time"
    processes, names = _names(events)
    return _Viewer(names, processes).view(timed)


def _check(event: Event) -> None:
    assert event["ph"] in NEEDED, event
    assert set(event) >= NEEDED[event["ph"]] | {"ph", "pid", "tid", "ts"}, event
    assert all(isinstance(event[key], int) and event[key] >= 0 for key in ("pid", "tid")), event
    assert event["ts"] >= 0, event
    if event["ph"] == "i":
        assert event["s"] in {"g", "p", "t"}, event
    if event["ph"] == "C":
        assert all(isinstance(value, int | float) for value in event["args"].values()), event


def _names(events: list[Event]) -> tuple[dict[int, str], dict[tuple[int, int], str]]:
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            assert event["pid"] not in processes, "a process is named once"
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in threads, "a thread is named once"
            threads[event["pid"], event["tid"]] = event["args"]["name"]
    assert len({thread for _, thread in threads}) == len(threads), "threads have own numbers"
    return processes, threads


class _Viewer:
    def __init__(self, names: dict[tuple[int, int], str], processes: dict[int, str]) -> None:
        self.names = names
        self.shown = Shown([], [], [], [], defaultdict(list))
        for (process, _), name in names.items():
            self.shown.lanes[processes[process]].append(name)
        self.open: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        self.flows: dict[int, dict[str, Any]] = {}
        self.ends: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def view(self, events: list[Event]) -> Shown:
        for event in events:
            self._take(event)
        assert not any(self.open.values()), "every slice that begins ends"
        assert not self.flows, "every arrow that begins ends"
        self.shown.arrows.extend((s["slice"], d["slice"]) for s, d in self.ends)
        return self.shown

    def _take(self, event: Event) -> None:
        lane = event["pid"], event["tid"]
        assert lane in self.names, f"a lane without a name: {event}"
        stack = self.open[lane]
        match event["ph"]:
            case "B":
                parent = stack[-1]["event"]["name"] if stack else None
                stack.append({"event": event, "parent": parent})
            case "E":
                assert stack, f"nothing is open: {event}"
                self._end(self.names[lane], stack.pop(), event)
            case "i":
                self.shown.instants.append((self.names[lane], event))
            case "C":
                self.shown.counters.append(event)
            case "s":
                assert event["id"] not in self.flows
                self.flows[event["id"]] = stack[-1]
            case "f":
                assert event["bp"] == "e"
                self.ends.append((self.flows.pop(event["id"]), stack[-1]))

    def _end(self, lane: str, ended: dict[str, Any], event: Event) -> None:
        begin = ended["event"]
        ended["slice"] = Slice(
            lane,
            begin["name"],
            begin["cat"],
            begin["ts"],
            event["ts"],
            ended["parent"],
            begin["args"] | event.get("args", {}),
        )
        self.shown.slices.append(ended["slice"])
