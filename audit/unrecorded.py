"""What an auditor cannot tell of a log that lacks some of the public names: sentences, and rules.

A log of our own has them all. No rules live here.
"""

from collections.abc import Collection
from typing import Final

# What is not there → what cannot be said without it. A name that is not here says nothing else.
_COST: Final = {
    "event.blocks": "S9 and what follows from free blocks are not checked",
    "event.cause": "which event led to which is not checked (S13)",
    "event.reason": "no reasons are told",
    "event.t_ns": "no times are told",
    "step": "the digest chain and each step's numbers are not checked (S13, S2, S5, S9, S11)",
    "step.ticket": "the batch of each step is not checked (S11)",
    "step.waiting": "the requests that wait after each step are not checked (S5)",
    "step.slots_held": "the slots held after each step are not checked (S2)",
    "step.blocks_free": "the free blocks after each step are not checked (S9)",
    "step.blocks_prefix_only": "the prefix cache's blocks after each step are not checked (S9)",
    "step.host_blocks": "the host's blocks after each step are not checked (S9)",
    "step.digest": "the digest chain is not checked (S13)",
    "run.outcome": "it is taken from `close`",
    "run.last_seq": "it is taken from the last event",
    "run.digest": "it is not compared with the last step's (S13)",
}
_LEAVES_OUT: Final = {"event.blocks": ("S9",)}


def sentences(absent: Collection[str]) -> list[str]:
    """One for each name that is not there, in their order."""
    return [f"{_where(name)}: {_COST[name]}" for name in sorted(absent) if name in _COST]


def _where(name: str) -> str:
    view, _, column = name.partition(".")
    return f"`{view}` has no column `{column}`" if column else f"there is no `{view}`"


def left_out(absent: Collection[str]) -> frozenset[str]:
    """The invariants that cannot be checked at all."""
    return frozenset(rule for name in absent for rule in _LEAVES_OUT.get(name, ()))
