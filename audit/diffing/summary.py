"""Two accounts side by side."""

import msgspec

from .account import Account, WorksCount


class WorksLine(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one set of work keys (`+` between them) on each side."""

    works: str
    a: WorksCount
    b: WorksCount


class WaitLine(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that a request waited on each side; None where it was not there."""

    request: str
    a: int | None
    b: int | None

    @property
    def change(self) -> int:
        """How many steps more it waited in B."""
        return (self.b or 0) - (self.a or 0)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """One side in numbers. `tokens` were in batches, `outputs` were sampled."""

    steps: int
    batches: int
    rows: int
    tokens: int
    outputs: int
    tokens_per_step: float
    outputs_per_step: float
    preemptions: dict[str, int]
    finished: dict[str, int]
    waited: int

    @property
    def preempted(self) -> int:
        """Preemptions of every kind."""
        return sum(self.preemptions.values())


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides in numbers: `works` by name, `waits` by how much they changed, most first."""

    a: Totals
    b: Totals
    works: list[WorksLine]
    waits: list[WaitLine]


def side_by_side(a: Account, b: Account) -> Summary:
    """The summary of two accounts that are complete."""
    none = WorksCount()
    works = [
        WorksLine(works=name, a=a.works.get(name, none), b=b.works.get(name, none))
        for name in sorted(a.works.keys() | b.works.keys())
    ]
    names = dict.fromkeys([*a.waits, *b.waits])
    waits = [WaitLine(request=name, a=a.waits.get(name), b=b.waits.get(name)) for name in names]
    waits.sort(key=lambda line: (-abs(line.change), line.request))
    return Summary(a=_totals(a), b=_totals(b), works=works, waits=waits)


def _totals(account: Account) -> Totals:
    counts = account.works.values()
    outputs, tokens = sum(map(len, account.outputs.values())), sum(c.tokens for c in counts)
    finished: dict[str, int] = {}
    for reason, _, _ in account.ends.values():
        finished[reason] = finished.get(reason, 0) + 1
    steps = max(1, account.steps)
    return Totals(
        steps=account.steps,
        batches=sum(c.batches for c in counts),
        rows=sum(c.rows for c in counts),
        tokens=tokens,
        outputs=outputs,
        tokens_per_step=round(tokens / steps, 3),
        outputs_per_step=round(outputs / steps, 3),
        preemptions=dict(sorted(account.preemptions.items())),
        finished=dict(sorted(finished.items())),
        waited=sum(account.waits.values()),
    )
