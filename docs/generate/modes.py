"""The order of decisions of each scheduler mode, found by asking its policy.

Every combination of what a policy can see is put before `rank`; the condition of each turn is the
shortest expression that covers exactly the combinations in which the turn is offered.
"""

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from itertools import product
from typing import Final

from rlt_fsm.config import Mode
from rlt_fsm.policies import ADMIT, POLICIES, Turn, View
from rlt_fsm.states import WorkKey

from .markdown import Block, code, table

Sight = tuple[int, ...]  # one value for each entry of SEEN
Cube = tuple[frozenset[int], ...]  # allowed values for each entry of SEEN

_ENOUGH_CODAS: Final = 2
_LAST: Final = ((), (WorkKey.DECODE_RECURRENT,), (WorkKey.DECODE_CODA,))
_FEW_READY, _ENOUGH_READY = frozenset({1}), frozenset({2})
_YES, _NO, _ANY_CODA = frozenset({1}), frozenset({0}), frozenset({1, 2})

# What a policy sees: name → number of values. Words for every set of values that can matter.
SEEN: Final[dict[str, int]] = {
    "DECODE_PRELUDE": 2,
    "DECODE_RECURRENT": 2,
    "DECODE_CODA": 3,  # none, fewer than min_coda_batch_size, enough
    "PROMPT_ATOMIC": 2,
    "PROMPT_PRELUDE": 2,
    "PROMPT_RECURRENT": 2,
    "decode_due": 2,
    "prompt_recurrent_due": 2,
    "last_works": 3,  # neither, a decode loop, a coda
}
_WORDS: Final[Mapping[tuple[str, frozenset[int]], str]] = {
    **{(key, _YES): f"{code(key)} ready" for key in WorkKey if key != "DECODE_CODA"},
    **{(key, _NO): f"no {code(key)} ready" for key in WorkKey},
    ("DECODE_CODA", _ANY_CODA): "`DECODE_CODA` ready",
    ("DECODE_CODA", _ENOUGH_READY): "`min_coda_batch_size` or more `DECODE_CODA` ready",
    ("DECODE_CODA", _FEW_READY): "fewer than `min_coda_batch_size` `DECODE_CODA` ready",
    ("decode_due", _YES): "decode is due",
    ("decode_due", _NO): "decode is not due",
    ("prompt_recurrent_due", _YES): "a prompt loop is due",
    ("prompt_recurrent_due", _NO): "no prompt loop is due",
    ("last_works", frozenset({1})): "the last batch was a decode loop",
    ("last_works", frozenset({2})): "the last batch was a coda",
    ("last_works", frozenset({1, 2})): "the last batch was a decode loop or a coda",
    ("last_works", frozenset({0})): "the last batch was neither a decode loop nor a coda",
}


class _Sight(View):
    """A view that shows one combination."""

    __slots__ = ("_seen",)

    def __init__(self, sight: Sight) -> None:
        self._seen = dict(zip(SEEN, sight, strict=True))

    def ready(self, key: WorkKey) -> int:
        return self._seen.get(key, 0)

    @property
    def decode_due(self) -> bool:
        return bool(self._seen["decode_due"])

    @property
    def prompt_recurrent_due(self) -> bool:
        return bool(self._seen["prompt_recurrent_due"])

    @property
    def last_works(self) -> tuple[WorkKey, ...]:
        return _LAST[self._seen["last_works"]]

    @property
    def min_coda_batch_size(self) -> int:
        return _ENOUGH_CODAS


SIGHTS: Final[list[Sight]] = list(product(*(range(count) for count in SEEN.values())))


def turns(mode: Mode) -> dict[Turn, set[Sight]]:
    """Every turn that a mode ever offers, in its order, and what is seen when it does."""
    policy = POLICIES[mode]()
    offered: dict[Turn, set[Sight]] = {}
    order: TopologicalSorter[Turn] = TopologicalSorter()
    for sight in SIGHTS:
        before: Turn | None = None
        for turn in policy.rank(_Sight(sight)):
            offered.setdefault(turn, set()).add(sight)
            order.add(turn, *([] if before is None else [before]))
            before = turn
    return {turn: offered[turn] for turn in order.static_order()}


def _cubes(positive: set[Sight]) -> Iterator[Cube]:
    """Few wide conditions that together cover `positive` and nothing else."""
    left = set(positive)
    while left:
        cube = [frozenset({value}) for value in min(left)]
        for place, count in enumerate(SEEN.values()):
            for more in (frozenset(range(count)), *(frozenset({v}) for v in range(count))):
                wider = [*cube]
                wider[place] = cube[place] | more
                if all(sight in positive for sight in product(*wider)):
                    cube = wider
        yield tuple(cube)
        left.difference_update(product(*cube))


def condition(positive: set[Sight]) -> str:
    """A condition in words."""
    return "; or ".join(
        " and ".join(
            _WORDS[name, allowed]
            for (name, count), allowed in zip(SEEN.items(), cube, strict=True)
            if len(allowed) < count
        )
        or "always"
        for cube in _cubes(positive)
    )


def _table_of(mode: Mode) -> str:
    rows = []
    for number, (turn, positive) in enumerate(turns(mode).items(), start=1):
        works = "admit and resume" if turn is ADMIT else " + ".join(code(k) for k in turn.works)
        reason = "" if turn is ADMIT else code(turn.reason)
        rows.append([number, works, condition(positive), reason])
    return table(["", "try", "when", "`batch.reason`"], rows, numbers=[0])


BLOCKS: dict[str, Block] = {
    "mode-refill": lambda: _table_of("refill"),
    "mode-no-refill": lambda: _table_of("no_refill"),
    "mode-mixed": lambda: _table_of("mixed"),
}
