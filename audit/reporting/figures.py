"""A run in figures and words: what stands on the page as text, beside what the scripts draw."""

import os
from collections import Counter
from collections.abc import Callable

import msgspec

from audit.diffing.side import flat
from audit.findings import Finding
from audit.reader import RunLog, open_log
from audit.request_names import name_of
from audit.verify import RunReport, verify
from audit.words import joined, shown
from rlt_fsm.log.port import EventStore, RunInfo
from rlt_fsm.wording import counted

from .gather import gather
from .gathered import Gathered
from .tables import PackedRun, packed_run, ref_of
from .waits import Wait, waits

Db = str | os.PathLike[str] | EventStore
Progress = Callable[[int, int], None]


class Figure(msgspec.Struct, frozen=True):
    """A number of the summary; `note` says what is in it."""

    name: str
    value: float | None
    note: str = ""


class FindingView(msgspec.Struct, frozen=True):
    """A finding as the page lists it: `evidence` as (name, JSON)."""

    finding: Finding
    request: str | None
    evidence: list[tuple[str, str]]


class Bar(msgspec.Struct, frozen=True):
    """Outputs that left after `depth` loops; `share` of all, 0 to 1."""

    depth: int
    outputs: int
    share: float


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the page shows it; `label` is A or B where there are two."""

    label: str
    log: str
    about: list[tuple[str, str]]
    report: RunReport
    sentence: str
    notes: list[str]
    figures: list[Figure]
    findings: list[FindingView]
    exits: list[Bar]
    waits: list[Wait]
    config: list[tuple[str, str]]
    packed: PackedRun


def run_view(
    db: Db, run_id: int | None, label: str = "", *, progress: Progress | None = None
) -> RunView:
    """Audit and read one run; without a number the newest.

    Raises:
        LogError: the log cannot be opened or read, or has no such run.
    """
    with open_log(db) as log:
        number = log.newest() if run_id is None else run_id
        run = log.run(number)
        (report,) = verify(db, number, progress=progress).runs
        gathered = gather(run, progress)
        return RunView(
            label=label,
            log=_log_name(log.name),
            about=_about(run.info),
            report=report,
            sentence=_sentence(report),
            notes=_notes(gathered, report),
            figures=_figures(gathered, report),
            findings=[_finding(run, finding) for finding in report.findings],
            exits=_exits(gathered),
            waits=waits(run, run.info.last_seq, gathered.idle_steps),
            config=_config(run.info),
            packed=packed_run(gathered, list(run.steps()), report),
        )


def _log_name(name: str) -> str:
    """A file without its folder; of a URL all but what may be secret."""
    return name.rpartition("/")[2].rpartition("@")[2]


def _about(info: RunInfo) -> list[tuple[str, str]]:
    model = msgspec.json.decode(info.model, type=_Named)
    revision = info.revision.partition("+")
    told = {
        "run": str(info.run_id),
        "model": model.name,
        "started": info.started_at.replace("T", " ").partition(".")[0],
        "outcome": info.outcome,
        "engine": info.engine_version,
        "revision": revision[0][:7] + revision[1] + revision[2],
        "digest": (info.digest or "")[:12],
    }
    return [(name, text) for name, text in told.items() if text]


class _Named(msgspec.Struct):
    name: str = ""


def _config(info: RunInfo) -> list[tuple[str, str]]:
    told = {"config": info.config, "model": info.model}
    fields = {name: msgspec.json.decode(text) for name, text in told.items()}
    return [(name.removeprefix("config."), _plain(value)) for name, value in flat(fields)]


def _sentence(report: RunReport) -> str:
    read = f"{counted(report.events, 'event')} of {counted(report.steps, 'step')}"
    if report.verdict == "inconclusive":
        return f"{report.why}; {read} were read."
    if report.verdict == "clean":
        return f"Every invariant holds over {read}."
    rules = joined(f"{rule} ({count:,})" for rule, count in sorted(report.counts.items()))
    also = "" if report.why is None else f" Also, {report.why}."
    return f"{counted(sum(report.counts.values()), 'finding')} in {read}: {rules}.{also}"


def _notes(gathered: Gathered, report: RunReport) -> list[str]:
    notes = list(report.unchecked)
    if gathered.unread:
        notes.append(f"{counted(gathered.unread, 'event')} could not be read: not shown below")
    return notes


def _figures(gathered: Gathered, report: RunReport) -> list[Figure]:
    requests, batches, outputs = gathered.requests, gathered.batches, gathered.outputs
    ends = Counter(gathered.ends.values())
    alive = len(requests["ref"]) - ends.total()
    told = [*sorted(ends.items()), *([("not ended", alive)] if alive else [])]
    steps, given, tokens = len(gathered.steps), len(outputs["idx"]), sum(batches["tokens"])
    depths = sum(outputs["exit_depth"])
    rows = len(gathered.rows["row"])
    waited = sum(requests["waited"])
    return [
        Figure("requests", len(requests["ref"]), ", ".join(f"{n:,} {end}" for end, n in told)),
        Figure("outputs", given, _per(given, steps, "a step")),
        Figure("mean exit depth", depths / given if given else None, "loops a token ran"),
        Figure("steps", steps, counted(report.events, "event")),
        Figure("batches", len(batches["ticket"]), _per(rows, len(batches["ticket"]), "rows each")),
        Figure("tokens in batches", tokens, _per(tokens, len(batches["ticket"]), "each")),
        Figure("preemptions", sum(requests["preemptions"]), "yields, offloads, rewinds"),
        Figure("steps waited", waited, _per(waited, len(requests["ref"]), "a request")),
    ]


def _per(count: int, of: int, what: str) -> str:
    return f"{count / of:,.2f} {what}" if of else ""


def _exits(gathered: Gathered) -> list[Bar]:
    counts = Counter(gathered.outputs["exit_depth"])
    model = gathered.run.model
    depths = range(1, max([*counts, 0 if model is None else model.depths], default=0) + 1)
    most = max(1, counts.total())
    return [Bar(depth, counts[depth], counts[depth] / most) for depth in depths]


def _finding(run: RunLog, finding: Finding) -> FindingView:
    ref = ref_of(run, finding)
    row = None if ref is None else run.requests[ref]
    return FindingView(
        finding=finding,
        request=None if row is None else shown(name_of(row)),
        evidence=[(name, _plain(value)) for name, value in finding.evidence.items()],
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
