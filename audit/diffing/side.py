"""One of two runs that are compared, and what its rows mean in terms that both sides share.

Move numbers and refs are a log's own; names and texts are not.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, Self

import msgspec

from rlt_fsm.log.port import EventStore, StepRow

from ..legality import Move
from ..reader import BLOCKS, EXTRA, MOVE, REF, SEQ, STEP, TICKET, Event, Log, open_log
from ..replay import Replay
from ..request_names import name_of

# What these tell may have fields that another version does not know.
VERSIONED: Final = frozenset({"open", "submit", "submit_remote", "refuse"})

Db = str | os.PathLike[str] | EventStore


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Which run a side is; `has_end` tells whether its last event is `close`."""

    log: str
    run_id: int
    revision: str
    engine_version: str
    outcome: str
    has_end: bool
    events: int
    digest: str | None


class Side:
    """One run, opened for as long as it is compared; a context manager.

    Raises:
        LogError: the log cannot be opened or read, or has no such run.
    """

    def __init__(self, db: Db, run: int | None = None) -> None:
        self._log: Log = open_log(db)
        try:
            self.run_id = self._log.newest() if run is None else run
            self.run = self._log.run(self.run_id)
        except BaseException:
            self._log.close()
            raise
        info = self.run.info
        self.last_seq = info.last_seq
        self._last = self.run.first_after(self.last_seq - 1) if self.last_seq else None
        self.has_end = self._last is not None and self.move(self._last).trigger == "close"
        self.about = About(
            log=self._log.name, run_id=self.run_id, revision=info.revision,
            engine_version=info.engine_version, outcome=info.outcome, has_end=self.has_end,
            events=info.last_seq, digest=info.digest,
        )  # fmt: skip
        self.names: dict[int | None, str] = {
            ref: name_of(row) for ref, row in self.run.requests.items()
        }
        self._texts = {number: move.text() for number, move in self.run.moves.items()}

    # ---- rows --------------------------------------------------------------------------------

    def events(self, after_seq: int = 0) -> Iterator[Event]:
        """The events after `after_seq`, up to the last that was there when it was opened."""
        last = self.last_seq
        return takewhile(lambda event: event[SEQ] <= last, self.run.events_after(after_seq))

    def first_step_row(self, step: int) -> StepRow | None:
        """The row of the first step from `step` on, if it is there."""
        row = next(self.run.steps(step - 1), None)
        return None if row is None or row.last_seq > self.last_seq else row

    @property
    def last_step(self) -> int:
        """The step of the last event; -1 where there is none."""
        return -1 if self._last is None else self._last[STEP]

    def move(self, event: Event) -> Move:
        """What an event moves; its trigger is `?` where the log does not say."""
        return self.run.moves.get(event[MOVE]) or Move("?", None, None, None, None)

    def name(self, event: Event) -> str | None:
        """The request of an event, as people write it."""
        return self.names.get(event[REF])

    def canonical(self, event: Event) -> tuple[object, ...]:
        """Everything that an event says but its time, in terms that both sides share."""
        names, texts = self.names, self._texts
        named, text = names.get(event[REF]), texts.get(event[MOVE])
        return (event[STEP], event[TICKET], named, text, *event[BLOCKS:])

    @cached_property
    def states(self) -> Replay:
        """The states of this run; leave it open, the log is closed here."""
        return Replay(self._log, self._log.run(self.run_id))

    # ---- as a context ------------------------------------------------------------------------

    def close(self) -> None:
        """Let the log go."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def same_event(a: Side, b: Side, event_a: Event, event_b: Event) -> bool:
    """Whether two events say the same, but for their time and what one version does not know."""
    one, other = a.canonical(event_a), b.canonical(event_b)
    if one == other:
        return True
    is_versioned = a.move(event_a).trigger in VERSIONED
    if not is_versioned or one[:-1] != other[:-1]:
        return False
    return agree(_told(event_a[EXTRA]), _told(event_b[EXTRA]))


def _told(text: str | None) -> object:
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text


def agree(one: object, other: object) -> bool:
    """Whether two JSON values are the same in every field that both have."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(agree(one[key], other[key]) for key in one.keys() & other.keys())
    return one == other


def flat(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """The fields of a JSON object as (`scheduler.mode`, value), inner objects opened."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else key)
    else:
        yield path, value
