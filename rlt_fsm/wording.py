"""Words for people: numbers with what they count, and `did you mean` for a name not known."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

MOST_SHOWN: Final = 3


def counted(count: int, thing: str) -> str:
    """`1 step`, `2,000 steps`, `3 batches`."""
    plural = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{count:,} {thing if count == 1 else plural}"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """At most three known names like `word`, the best first; capitals do not count."""
    by_small = {name.casefold(): name for name in known}
    found = get_close_matches(word.casefold(), by_small, n=MOST_SHOWN)
    return [by_small[small] for small in found]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean x or y?`, or nothing where no known name is like `word`."""
    near = nearest(word, known)
    return f"did you mean {' or '.join(near)}?" if near else ""
