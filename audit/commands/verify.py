"""`rlt-audit verify`: every invariant over a log, and a table of what each run came to."""

from typing import Annotated

import typer

from audit.findings import Finding
from audit.verify import Report, RunReport, verify

from .common import ProgressLine, Status, mistakes_in_one_sentence, print_json, print_text

STATUS_OF = {
    "clean": Status.WELL,
    "findings": Status.NO,
    "inconclusive": Status.INCONCLUSIVE,
}
HELP = """Check every invariant over all runs of a log, or one.

Example: rlt-audit verify run.db --run 2

Exit status: 0 clean, 1 findings, 2 the log cannot be read, 3 inconclusive (no events, or a run
without its end). A log that begins with a checkpoint goes on from it; with its archives given
before it, oldest first, all of it is checked. Of several runs the worst decides: 1, then 3, then 0.
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="verify", help=HELP)(_verify)


def _verify(
    db: Annotated[
        list[str],
        typer.Argument(help="The log: a file or a database URL; its archives first.", metavar="DB"),
    ],
    run: Annotated[int | None, typer.Option(help="Check this run only.", metavar="N")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    with mistakes_in_one_sentence(), ProgressLine() as progress:
        report = verify(db, run, progress=progress)
    if as_json:
        print_json(report)
    else:
        print_text(render(report), STATUS_OF[report.verdict])
    raise typer.Exit(STATUS_OF[report.verdict])


def render(report: Report) -> str:
    """The report as text: a table of runs, then the findings of each."""
    lines = [report.log]
    if not report.runs:
        return "\n".join([*lines, "", "inconclusive: the log has no runs"])
    rows: list[tuple[str, ...]] = [("run", "events", "steps", "requests", "seconds", "verdict")]
    rows += [_row(part) for part in report.runs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    for part in report.runs:
        lines += _findings(part)
    lines += _notes(report)
    return "\n".join([*lines, "", summary(report)])


def _row(part: RunReport) -> tuple[str, ...]:
    verdict = f"inconclusive: {part.why}" if part.verdict == "inconclusive" else part.verdict
    counts = (f"{part.events:,}", f"{part.steps:,}", f"{part.requests:,}")
    return (str(part.run_id), *counts, f"{part.seconds:.2f}", verdict)


def _findings(part: RunReport) -> list[str]:
    if not part.findings:
        return []
    lines = ["", f"run {part.run_id}: findings"]
    for finding in part.findings:
        lines += shown_finding(finding, "  ")
    broken = sum(part.counts.values())
    if broken > len(part.findings):
        by_rule = ", ".join(f"{rule} {count}" for rule, count in sorted(part.counts.items()))
        lines.append(f"  … {broken - len(part.findings)} more; in all {by_rule}")
    if part.why is not None:
        lines.append(f"  Also, {part.why}.")
    return lines


def _notes(report: Report) -> list[str]:
    """What was not read, and what another engine's log does not tell, the same for all its runs."""
    notes = dict.fromkeys(note for part in report.runs for note in part.unchecked)
    notes |= {f"run {part.run_id}: {part.trusted}": None for part in report.runs if part.trusted}
    return ["", *(f"note: {note}" for note in notes)] if notes else []


def shown_finding(finding: Finding, head: str) -> list[str]:
    """Its place, then what is wrong; `head` stands before the place."""
    return [f"{head}{_place(finding)}", f"      {finding.message}"]


def _place(finding: Finding) -> str:
    who = "" if finding.request_id is None else f"  request {finding.request_id}"
    generation = finding.evidence.get("generation", 1)
    use = "" if generation == 1 else f"#{generation}"
    return f"{finding.invariant:<4} seq {finding.seq}  step {finding.step}{who}{use}"


def summary(report: Report) -> str:
    """The verdict in one line."""
    rate = f"{report.events:,} events in {report.seconds:.2f} s"
    if report.verdict == "findings":
        first = report.findings[0]
        return f"findings: {first.invariant} is the first, at seq {first.seq} ({rate})"
    return f"{report.verdict} ({rate})"
