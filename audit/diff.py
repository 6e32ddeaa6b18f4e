"""`audit.diff`: two runs held against each other, down to the first step where they part.

On three levels: `schedule` (which rows were in the batch of each step), `outputs` (tokens, exit
depths and how each request ended), `events` (everything but time). What a version does not know of
configuration or parameters is not held against it.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import Literal, get_args

import msgspec

from rlt_fsm.arguments import function_or_none, one_of, yes_or_no

from .diffing.account import Account, Turn
from .diffing.difference import (
    Difference,
    Level,
    first_output,
    of_events,
    of_outputs,
    of_schedule,
)
from .diffing.first_event import agreed_seq, first_event
from .diffing.sameness import Changed, compared_headers, require_same_workload
from .diffing.side import About, Db, Side
from .diffing.summary import Summary, side_by_side
from .reader import Event

Verdict = Literal["identical", "same-schedule", "same-outputs", "other-outputs", "inconclusive"]
Progress = Callable[[int, int], None]  # (events read, events there are)
TurnPair = tuple[Turn | None, Turn | None]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """The answer.

    `same` tells for each level whether the runs are the same on it; `verdict` is the gravest that
    differs (other outputs; same outputs, other schedule; same schedule, other events), `differs`
    whether they do on `level`. `is_cut`: one of them has no end, and what it lacks is not held
    against it. `changed` are fields of configuration and model, `unknown` those that one version
    does not have; `first` is the first difference on `level`, apart from these.
    """

    a: About
    b: About
    level: Level
    verdict: Verdict
    differs: bool
    is_cut: bool
    same: dict[Level, bool]
    changed: list[Changed]
    unknown: list[str]
    first: Difference | None
    summary: Summary

    @property
    def ok(self) -> bool:
        """Whether the runs are known to be the same on the level that was asked for."""
        return not self.differs and not self.is_cut


def diff(
    a: Db,
    b: Db,
    *,
    run_a: int | None = None,
    run_b: int | None = None,
    level: Level = "events",
    anyway: bool = False,
    trust_digests: bool = True,
    progress: Progress | None = None,
) -> Diff:
    """Compare two runs; without a number the newest of each log.

    Args:
        a: a path, a URL or an open log.
        b: the same.
        run_a: the run of A.
        run_b: the run of B.
        level: on which level `first` and `differs` are meant.
        anyway: compare runs of different workloads too.
        trust_digests: skip what the digest chains vouch for.
        progress: called now and then.

    Raises:
        LogError: a log cannot be opened or read, has no such run, or the workloads differ.
    """
    one_of("level", level, get_args(Level))
    yes_or_no("anyway", anyway)
    yes_or_no("trust_digests", trust_digests)
    function_or_none("progress", progress)
    with Side(a, run_a) as side_a, Side(b, run_b) as side_b:
        if not anyway:
            require_same_workload(side_a, side_b, thorough=True)
        comparison = _Comparison(side_a, side_b, progress, trust_digests=trust_digests)
        return comparison.answer(level)


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """The first event in which two runs differ, None where none does; `is_cut` as in `Diff`."""

    first: Difference | None
    is_cut: bool


def first_difference(
    a: Db, b: Db, *, run_a: int | None = None, run_b: int | None = None
) -> Parting:
    """Where two runs part, at once: without their states there, and without reading on.

    The first event of all, which tells the configuration, is passed over.

    Raises:
        LogError: a log cannot be opened or read, has no such run, or the workloads differ.
    """
    with Side(a, run_a) as side_a, Side(b, run_b) as side_b:
        require_same_workload(side_a, side_b, thorough=False)
        pair = first_event(side_a, side_b, after_seq=agreed_seq(side_a, side_b), skip_open=True)
        has_other = pair is not None and not is_only_cut(side_a, side_b, *pair)
        return Parting(
            first=of_events(side_a, side_b, pair, has_states=False)
            if pair is not None and has_other
            else None,
            is_cut=not (side_a.has_end and side_b.has_end),
        )


class _Comparison:
    """The comparison of two open runs: first their events, then their accounts."""

    def __init__(self, a: Side, b: Side, progress: Progress | None, *, trust_digests: bool) -> None:
        self._a, self._b = a, b
        self._progress = progress
        self._done, self._total = 0, 2 * (a.last_seq + b.last_seq)
        self._headers = compared_headers(a, b)
        self._agreed_seq = agreed_seq(a, b) if trust_digests else 0
        self._pair = first_event(a, b, after_seq=self._agreed_seq, skip_open=True, tell=self._tell)

    def _tell(self, read: int) -> None:
        if self._progress is not None:
            self._progress(self._done + read, self._total)

    def answer(self, level: Level) -> Diff:
        """Read both runs to their ends and judge."""
        a, b = self._a, self._b
        self._done = self._total // 2
        turns, account_a, account_b = self._accounts()
        outputs = first_output(account_a, account_b, is_a_cut=not a.has_end, is_b_cut=not b.has_end)
        firsts: dict[Level, Callable[[], Difference | None]] = {
            "outputs": lambda: None if outputs is None else of_outputs(a, b, outputs),
            "schedule": lambda: None if turns is None else of_schedule(a, b, *turns),
            "events": lambda: None if self._pair is None else of_events(a, b, self._pair),
        }
        same: dict[Level, bool] = {
            "outputs": outputs is None,
            "schedule": turns is None or is_only_cut(a, b, *turns),
            "events": not self._headers.changed
            and (self._pair is None or is_only_cut(a, b, *self._pair)),
        }
        is_cut = not (a.has_end and b.has_end)
        return Diff(
            a=a.about,
            b=b.about,
            level=level,
            verdict=_verdict(same, is_cut=is_cut),
            differs=not same[level],
            is_cut=is_cut,
            same=same,
            changed=self._headers.changed,
            unknown=self._headers.unknown,
            first=None if same[level] else firsts[level](),
            summary=side_by_side(account_a, account_b),
        )

    def _accounts(self) -> tuple[TurnPair | None, Account, Account]:
        """The first two batches that differ, and both accounts, read side by side."""
        a, b = self._a, self._b
        account_a = Account(a, self._tell)
        if self._pair is None:  # the same events: the one account is the other
            for _ in account_a.turns():
                pass
            return None, account_a, account_a
        account_b = Account(b, self._tell)
        first: TurnPair | None = None
        for turn_a, turn_b in zip_longest(account_a.turns(), account_b.turns()):
            is_same = turn_a is not None and turn_b is not None and turn_a[:2] == turn_b[:2]
            if first is None and not is_same:
                first = turn_a, turn_b
        return first, account_a, account_b


def is_only_cut(a: Side, b: Side, one: Turn | Event | None, other: Turn | Event | None) -> bool:
    """Whether a side lacks something merely because its log has no end."""
    for here, there, side in ((one, other, a), (other, one, b)):
        if side.has_end:
            continue
        if here is None or (
            isinstance(here, Turn)
            and isinstance(there, Turn)
            and here.step == there.step == side.last_step
            and here.rows == there.rows[: len(here.rows)]
        ):
            return True
    return False


def _verdict(same: dict[Level, bool], *, is_cut: bool) -> Verdict:
    if not same["outputs"]:
        return "other-outputs"
    if not same["schedule"]:
        return "same-outputs"
    if not same["events"]:
        return "same-schedule"
    return "inconclusive" if is_cut else "identical"
