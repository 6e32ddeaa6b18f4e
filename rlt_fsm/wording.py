"""Words for people: numbers with what they count, and `did you mean` for a name not known."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

MOST_SHOWN: Final = 3
_LEAST_LIKE, _CLOSE_TO_BEST = 0.6, 0.1  # of 1, which is the same


def counted(count: int, thing: str) -> str:
    """`1 step`, `2,000 steps`, `3 batches`."""
    plural = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{count:,} {thing if count == 1 else plural}"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """At most three known names like `word`, the best first; capitals do not count."""
    matcher = SequenceMatcher(b=word.casefold())
    likeness = {}
    for name in dict.fromkeys(known):
        matcher.set_seq1(name.casefold())
        if matcher.real_quick_ratio() >= _LEAST_LIKE and matcher.quick_ratio() >= _LEAST_LIKE:
            likeness[name] = matcher.ratio()
    least = max(_LEAST_LIKE, max(likeness.values(), default=0.0) - _CLOSE_TO_BEST)
    found = [name for name, likely in likeness.items() if likely >= least]
    return sorted(found, key=lambda name: -likeness[name])[:MOST_SHOWN]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean x or y?`, or nothing where no known name is like `word`."""
    near = nearest(word, known)
    return f"did you mean {' or '.join(near)}?" if near else ""
