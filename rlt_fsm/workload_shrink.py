"""Makes a failing workload small: delta debugging over the objects of a `rlt-workload/1` file.

Deterministic, and blind to what fails: it drops requests, actions and list items, drops keys (so
that configuration and parameters go back to their defaults), and lowers numbers, as long as the
caller says that what is left still fails in the same way. (Zeller, Hildebrandt: Simplifying and
Isolating Failure-Inducing Input, 2002.)
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations
from typing import Any, Final

import msgspec

Object = dict[str, Any]  # a workload as JSON objects, which need not be valid
Path = tuple[str | int, ...]  # keys and indices from the top

_KEPT: Final = frozenset({"format", "name", "about", "expect"})
MOST_PAIRED: Final = 48  # things that may go in pairs: 1,128 pairs
_TOGETHER: Final = (("prompt_like", "shared_len"),)  # one alone is no workload


def shrink(
    workload: Object, still_fails: Callable[[Object], bool], *, max_trials: int = 1_000
) -> Object:
    """A workload from which nothing can be dropped or lowered without losing the failure.

    Where few things are left, no two of them can be dropped together either.

    Args:
        workload: it fails; it is not changed.
        still_fails: whether a candidate is a workload at all and fails in the same way.
        max_trials: how many candidates may be tried; the best so far is the answer.
    """
    return _Shrinker(workload, still_fails, max_trials).run()


class _Shrinker:
    def __init__(
        self, workload: Object, still_fails: Callable[[Object], bool], max_trials: int
    ) -> None:
        self._best = deepcopy(workload)
        self._still_fails = still_fails
        self._trials_left = max_trials
        self._tried: set[bytes] = set()

    def run(self) -> Object:
        before: Object | None = None
        while self._best != before and self._trials_left:
            before = self._best
            for path in _paths(self._best, list):
                self._drop_items(path)
            self._drop_keys()
            for path in _paths(self._best, int):
                self._lower(path)
            if self._best == before:
                self._drop_a_pair()
        return self._best

    def _accepts(self, candidate: Object) -> bool:
        text = msgspec.json.encode(candidate)
        if text in self._tried or not self._trials_left:
            return False
        self._tried.add(text)
        self._trials_left -= 1
        if not self._still_fails(deepcopy(candidate)):
            return False
        self._best = candidate
        return True

    # ---- candidates --------------------------------------------------------------------------

    def _with(self, path: Path, value: object) -> Object:
        """The best so far, but with another value at a path."""
        candidate = deepcopy(self._best)
        _at(candidate, path[:-1])[path[-1]] = value
        return candidate

    def _without(self, path: Path, keys: tuple[str, ...]) -> Object:
        """The best so far without some keys of the object at a path."""
        candidate = deepcopy(self._best)
        holder = _at(candidate, path)
        for key in keys:
            holder.pop(key, None)
        return candidate

    # ---- passes ------------------------------------------------------------------------------

    def _drop_items(self, path: Path) -> None:
        """Drop items of a list: halves first, then smaller and smaller pieces."""
        size = len(_list(self._best, path)) // 2 or 1
        while size:
            start = 0
            while start < len(items := _list(self._best, path)):
                if not self._accepts(self._with(path, items[:start] + items[start + size :])):
                    start += size
            size //= 2

    def _drop_keys(self) -> None:
        """Drop keys from the top down, those that go together at once."""
        for *above, key in list(_keys(self._best)):
            path = tuple(above)
            holder = _get(self._best, path)
            if isinstance(holder, dict) and key in holder:  # else it went with another
                assert isinstance(key, str)
                group = next((keys for keys in _TOGETHER if key in keys), (key,))
                self._accepts(self._without(path, group))

    def _drop_a_pair(self) -> None:
        """Drop two things at once that cannot go alone: a request and the fault that ended it."""
        paths = [path for path, _ in _walk(self._best)]
        if len(paths) > MOST_PAIRED:
            return
        for one, other in combinations(paths, 2):  # `other` comes later: it goes first
            if other[: len(one)] == one:
                continue
            candidate = deepcopy(self._best)
            for path in (other, one):
                del _at(candidate, path[:-1])[path[-1]]
            if self._accepts(candidate):
                return

    def _lower(self, path: Path) -> None:
        """Lower a number as far as it goes."""
        number = _get(self._best, path)
        while isinstance(number, int) and not isinstance(number, bool):
            lower = (n for n in sorted({0, 1, number // 2, number - 1}) if 0 <= n < number)
            number = next((n for n in lower if self._accepts(self._with(path, n))), None)


# ---- paths -------------------------------------------------------------------------------------


def _walk(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Everything below the top that may change, parents first."""
    if isinstance(value, dict):
        items: list[tuple[str | int, object]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, item in items:
        if path or key not in _KEPT:
            yield (*path, key), item
            yield from _walk(item, (*path, key))


def _paths(workload: Object, kind: type) -> list[Path]:
    """Where values of a type are."""
    return [path for path, value in _walk(workload) if isinstance(value, kind)]


def _keys(workload: Object) -> Iterator[Path]:
    """Where dictionary keys are."""
    return (path for path, _ in _walk(workload) if isinstance(path[-1], str))


def _at(value: Any, path: Path) -> Any:
    """What is at a path that exists."""
    for key in path:
        value = value[key]
    return value


def _get(value: Any, path: Path) -> Any:
    """What is at a path, or None."""
    try:
        return _at(value, path)
    except (KeyError, IndexError, TypeError):
        return None


def _list(value: Any, path: Path) -> list[object]:
    """The list at a path; empty where none is left."""
    found = _get(value, path)
    return found if isinstance(found, list) else []
