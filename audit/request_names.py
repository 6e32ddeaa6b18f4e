"""Finds the request that a person means by `ID` or `ID#generation`."""

from collections.abc import Iterable

from rlt_fsm.errors import LogError
from rlt_fsm.log.port import RequestRow
from rlt_fsm.wording import did_you_mean

from .reader import RunLog
from .words import shown

MAX_SUGGESTIONS = 3


def name_of(row: RequestRow) -> str:
    """A request as people write it: its id, with the generation from the second on."""
    return row.request_id if row.generation == 1 else f"{row.request_id}#{row.generation}"


def find_request(run: RunLog, text: str) -> RequestRow:
    """The request named so: an id stands for its first use, `a#2` for the second use of `a`.

    Raises:
        LogError: the run has no such request; the nearest names are in the sentence.
    """
    rows = [RequestRow(*row) for row in run.requests.values()]
    # An id may itself hold a `#`, so the whole text comes first.
    for row in rows:
        if row.request_id == text and row.generation == 1:
            return row
    request_id, _, generation = text.rpartition("#")
    for row in rows:
        if row.request_id == request_id and str(row.generation) == generation:
            return row
    raise LogError(f"run {run.info.run_id} has no request {text!r}{_instead(rows, text)}")


def _instead(rows: list[RequestRow], text: str) -> str:
    if not rows:
        return ": it has no requests at all"
    uses = [row for row in rows if row.request_id in (text, text.rpartition("#")[0])]
    if uses:
        return f": of this id it has {_listed(name_of(row) for row in uses)}"
    names = dict.fromkeys(row.request_id for row in rows)
    if near := did_you_mean(text, map(shown, names)):
        return f": {near}"
    return f": its {len(names)} ids are like {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    listed = [shown(name) for name in names]
    more = ", …" if len(listed) > MAX_SUGGESTIONS else ""
    return ", ".join(listed[:MAX_SUGGESTIONS]) + more
