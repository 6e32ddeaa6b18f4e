"""Whether two runs were given the same: their workloads, and how their configurations differ."""

from typing import Any, Final

import msgspec

from rlt_fsm.errors import LogError

from ..fold import UNREADABLE
from ..reader import EXTRA, REF
from ..words import joined, shown
from .side import Side, agree, flat

# What a workload file says besides what is given to an engine.
ASIDE: Final = frozenset({"config", "name", "about", "expect", "format"})
ARRIVALS: Final = frozenset({"submit", "submit_remote", "refuse"})


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the configuration or the model with a value on each side."""

    field: str
    a: object
    b: object


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """How the configurations and models differ.

    `unknown` are fields that one side's version does not have: nothing can be said about these.
    """

    changed: list[Changed]
    unknown: list[str]


def compared_headers(a: Side, b: Side) -> Headers:
    """Hold configuration and model of two runs against each other."""
    changed: list[Changed] = []
    unknown: list[str] = []
    for prefix, one, other in (
        ("", a.run.info.config, b.run.info.config),
        ("model.", a.run.info.model, b.run.info.model),
    ):
        fields, others = dict(flat(_json(one))), dict(flat(_json(other)))
        for field in dict.fromkeys([*fields, *others]):
            if field in fields and field in others:
                if fields[field] != others[field]:
                    changed.append(Changed(field=prefix + field, a=fields[field], b=others[field]))
            elif fields.get(field, others.get(field)) is not None:
                unknown.append(prefix + field)
    return Headers(changed=changed, unknown=unknown)


def require_same_workload(a: Side, b: Side, *, thorough: bool) -> None:
    """Raise LogError where the two runs were not given the same.

    Workload texts decide where both runs have one. Else, if `thorough`, every arrival is compared;
    a run without its end may lack some.
    """
    one, other = a.run.info.workload, b.run.info.workload
    if one is not None and other is not None:
        if (different := _different_texts(_json(one), _json(other))) is not None:
            raise LogError(_sentence(a, b, different))
    elif thorough and (different := _different_arrivals(a, b)) is not None:
        raise LogError(_sentence(a, b, different))


def _sentence(a: Side, b: Side, different: str) -> str:
    return (
        f"{a.about.log} run {a.run_id} and {b.about.log} run {b.run_id} are runs of different "
        f"workloads ({different}): give two runs of one workload, or compare them --anyway"
    )


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}


def _different_texts(one: dict[str, object], other: dict[str, object]) -> str | None:
    """Which key of two workload texts differs; a key that only one version writes is a default."""
    for key in sorted((one.keys() | other.keys()) - ASIDE):
        if one.get(key) != other.get(key):
            return f"their `{key}` differ"
    return None


def _different_arrivals(a: Side, b: Side) -> str | None:
    one, other = _arrivals(a), _arrivals(b)
    for name in one.keys() & other.keys():
        if not agree(one[name], other[name]):
            return f"request {shown(name)} has another prompt or other parameters"
    for here, there, side in ((one, other, b), (other, one, a)):
        missing = [name for name in here if name not in there]
        if missing and side.has_end:
            names = joined((shown(name) for name in missing), most=3)
            return f"{side.about.log} run {side.run_id} never got {names}"
    return None


def _arrivals(side: Side) -> dict[str, object]:
    moves = {number for number, move in side.run.moves.items() if move.trigger in ARRIVALS}
    arrivals: dict[str, object] = {}
    for event in side.run.select(moves=moves, until_seq=side.last_seq):
        try:
            arrivals[side.names.get(event[REF], "?")] = msgspec.json.decode(event[EXTRA] or "{}")
        except UNREADABLE:
            continue
    return arrivals
