"""What was gathered of a run, as the page gets it: facts in JSON, columns packed.

Rows of a request stand together, in the order of `requests`, which is what its lane reads and what
deflates best.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from audit.findings import Finding
from audit.reader import RunLog
from audit.request_names import name_of
from audit.verify import RunReport
from audit.words import BATCHES, in_words, shown
from rlt_fsm.log.port import StepRow

from . import kinds
from .gathered import NO_NUMBER, Gathered, Table
from .packed import Packed, deflated, pack

STEP_COLUMNS: Final = ("blocks_free", "blocks_prefix_only", "host_blocks")


class PackedRun(msgspec.Struct, frozen=True):
    """One run for the scripts: `facts` is JSON, `texts` deflated JSON of what happened."""

    facts: dict[str, object]
    tables: dict[str, Packed]
    texts: str


def packed_run(gathered: Gathered, steps: list[StepRow], report: RunReport) -> PackedRun:
    """Everything that a page shows of a run."""
    places = {ref: place for place, ref in enumerate(gathered.requests["ref"])}
    requests = {name: column for name, column in gathered.requests.items() if name != "ref"}
    by_request = {
        name: _by_request(table, places)
        for name, table in (
            ("lanes", gathered.lanes),
            ("machines", gathered.machines),
            ("rows", gathered.rows),
            ("outputs", gathered.outputs),
            ("notes", gathered.notes),
        )
    }
    tables = {"steps": pack(_steps(gathered, steps)), "requests": pack(requests)}
    tables |= {"batches": pack(gathered.batches)}
    tables |= {name: pack(table) for name, table in by_request.items()}
    texts = deflated(msgspec.json.encode(list(gathered.texts)))
    return PackedRun(facts=_facts(gathered, report, places), tables=tables, texts=texts)


def _by_request(table: Table, places: Mapping[int, int]) -> dict[str, NDArray[np.int64]]:
    """A table with each request's rows together, `request` in place of `ref`."""
    columns = {name: np.frombuffer(column, np.int64) for name, column in table.items()}
    refs, at = np.unique(columns.pop("ref"), return_inverse=True)
    request = np.array([places.get(int(ref), NO_NUMBER) for ref in refs], np.int64)[at]
    order = np.argsort(request, kind="stable")
    order = order[request[order] >= 0]  # a damaged row may name nobody
    return {"request": request[order], **{name: c[order] for name, c in columns.items()}}


def _steps(gathered: Gathered, rows: list[StepRow]) -> dict[str, list[int]]:
    """Numbers at the end of each step; what its own row tells counts, where it is there."""
    told = {row.step: row for row in rows}
    at = [told.get(step) for step in gathered.steps]
    table = {"step": list(gathered.steps), "waiting": list(gathered.waiting)}
    table["slots_held"] = list(gathered.held)
    for column, row in enumerate(at):
        if row is not None:
            table["waiting"][column], table["slots_held"][column] = row.waiting, row.slots_held
    for name in STEP_COLUMNS:
        table[name] = [NO_NUMBER if row is None else getattr(row, name) for row in at]
    return table | {f"queued {key}": list(column) for key, column in gathered.queued.items()}


def _facts(gathered: Gathered, report: RunReport, places: Mapping[int, int]) -> dict[str, object]:
    run = gathered.run
    names = dict(_names(run, gathered))
    reasons = {reason: in_words(reason, BATCHES) for reason in gathered.names}
    return {
        "run_id": run.info.run_id,
        "slots": run.config.scheduler.max_num_seqs,
        "blocks": run.config.cache.num_blocks,
        "depths": None if run.model is None else run.model.depths,
        "kinds": kinds.KINDS,
        "keys": kinds.KEYS,
        "first_key": kinds.FIRST_KEY,
        "requests": [names[ref] for ref in gathered.requests["ref"]],
        "ends": [gathered.ends.get(ref, "") for ref in gathered.requests["ref"]],
        "names": list(gathered.names),
        "because": [reasons[name] for name in gathered.names],
        "findings": [_finding(run, finding, places) for finding in report.findings],
    }


def _names(run: RunLog, gathered: Gathered) -> Iterator[tuple[int, str]]:
    for ref in gathered.requests["ref"]:
        row = run.requests.get(ref)
        yield ref, f"ref {ref}" if row is None else shown(name_of(row))


def _finding(run: RunLog, finding: Finding, places: Mapping[int, int]) -> dict[str, object]:
    """Where a finding is on the page; `request` is its place, None where it has none."""
    ref = ref_of(run, finding)
    return {
        "invariant": finding.invariant,
        "step": finding.step,
        "seq": finding.seq,
        "request": places.get(ref) if ref is not None else None,
        "message": finding.message,
    }


def ref_of(run: RunLog, finding: Finding) -> int | None:
    """The request that a finding names."""
    generation = finding.evidence.get("generation", 1)
    return next(
        (
            row.ref
            for row in run.requests.values()
            if (row.request_id, row.generation) == (finding.request_id, generation)
        ),
        None,
    )
