"""Two runs held against each other, as the page shows them beside their own data."""

from collections.abc import Callable

import msgspec

from audit.diff import Diff
from audit.diffing.difference import Difference, There
from audit.diffing.in_words import chosen_facts, state_facts, verdict_in_words
from audit.diffing.summary import Totals
from audit.words import shown


class Row(msgspec.Struct, frozen=True):
    """One fact on both sides; `change` where it is a number."""

    name: str
    a: str
    b: str
    change: str = ""

    @property
    def differs(self) -> bool:
        """Whether the sides do not say the same."""
        return self.a != self.b


class Group(msgspec.Struct, frozen=True):
    """Facts of one kind: what each side chose, or its state."""

    name: str
    rows: list[Row]


class SidesView(msgspec.Struct, frozen=True, kw_only=True):
    """Where two runs part. `step` is None where they do not; `request` is whom it concerns."""

    sentence: str
    is_same: bool
    level: str
    step: int | None
    request: str | None
    groups: list[Group]
    why: list[tuple[str, list[str]]]
    changed: list[Row]
    unknown: list[str]
    totals: list[Row]
    waits: list[Row]


def sides_view(diff: Diff) -> SidesView:
    """A comparison for the page."""
    first = diff.first
    sentence = verdict_in_words(diff)
    return SidesView(
        sentence=sentence[:1].upper() + sentence[1:] + ".",
        is_same=not diff.differs,
        level=diff.level,
        step=None if first is None else first.step,
        request=None if first is None or first.request is None else shown(first.request),
        groups=[] if first is None else _groups(first),
        why=[] if first is None else [("A", first.a.why), ("B", first.b.why)],
        changed=[Row(c.field, _plain(c.a), _plain(c.b)) for c in diff.changed],
        unknown=diff.unknown,
        totals=_totals(diff),
        waits=[
            _numbers(shown(wait.request), wait.a, wait.b)
            for wait in diff.summary.waits
            if wait.change
        ],
    )


def _groups(first: Difference) -> list[Group]:
    groups = [
        Group("did", [Row("", first.a.what, first.b.what)]),
        _group("chose", first, chosen_facts),
    ]
    if first.a.before:
        groups.append(_group("before", first, lambda there: state_facts(there.before)))
        groups.append(_group("after", first, lambda there: state_facts(there.after)))
    return groups


def _group(name: str, first: Difference, facts: Callable[[There], dict[str, str]]) -> Group:
    a, b = facts(first.a), facts(first.b)
    return Group(name, [Row(fact, a.get(fact, ""), b.get(fact, "")) for fact in {**a, **b}])


def _totals(diff: Diff) -> list[Row]:
    a, b = diff.summary.a, diff.summary.b
    names: dict[str, Callable[[Totals], float]] = {
        "steps": lambda side: side.steps,
        "batches": lambda side: side.batches,
        "rows": lambda side: side.rows,
        "tokens in batches": lambda side: side.tokens,
        "outputs": lambda side: side.outputs,
        "tokens per step": lambda side: side.tokens_per_step,
        "outputs per step": lambda side: side.outputs_per_step,
        "preemptions": lambda side: side.preempted,
        "steps waited": lambda side: side.waited,
    }
    rows = [_numbers(name, of(a), of(b)) for name, of in names.items()]
    return rows + [
        _numbers(f"{line.works} batches", line.a.batches, line.b.batches)
        for line in diff.summary.works
    ]


def _numbers(name: str, a: float | None, b: float | None) -> Row:
    change = (b or 0) - (a or 0)
    is_whole = isinstance(change, int)
    change_text = "" if not change else f"{change:+,}" if is_whole else f"{change:+,.2f}"
    return Row(name, _number(a), _number(b), change_text)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
