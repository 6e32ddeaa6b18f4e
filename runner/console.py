"""What `rlt-fsm run` shows: plain text for people, JSON for machines.

Functions of finished values; nothing here runs a model or reads a log.
"""

from collections.abc import Iterable, Sequence

import msgspec

from rlt_fsm.wording import counted

_LINES_SHOWN = 60
_ITEMS_SHOWN = 12


class OutputLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request's outcome; `prompt` is text, or token ids where no text was given."""

    request_id: str
    prompt: str | tuple[int, ...]
    text: str | None
    token_ids: Sequence[int]
    exit_depths: Sequence[int]
    finish_reason: str | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was turned away."""

    request_id: str
    reason: str
    message: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers; `mean_exit_depth` is None where no token came out."""

    requests: int
    tokens: int
    steps: int
    batches: int
    preemptions: int
    mean_exit_depth: float | None
    seconds: float
    refused: Sequence[Refusal]
    expect_failures: Sequence[str]


class FindingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of the audit."""

    invariant: str
    seq: int
    step: int
    request_id: str | None
    message: str
    evidence: object


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of a run."""

    verdict: str
    findings: Sequence[FindingLine]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run: the object that `--json` prints. `audit` is None where none was made."""

    outputs: Sequence[OutputLine]
    summary: Summary
    audit: AuditLine | None
    db: str
    run_id: int


def as_json(ran: Ran) -> str:
    """The run as one JSON object."""
    return msgspec.json.encode(ran).decode()


# ---- for people --------------------------------------------------------------------------------


def as_text(ran: Ran, audit_line: str) -> str:
    """Outputs in columns, refusals, the summary, what was not as expected, the audit."""
    summary = ran.summary
    lines = _table(ran.outputs)
    lines += [f"refused {r.request_id}: {_one_line(r.message)}" for r in summary.refused]
    if lines:
        lines.append("")
    lines.append(_numbers(summary))
    lines += [f"not as expected: {sentence}" for sentence in summary.expect_failures]
    if ran.audit is not None:
        lines += [_finding(finding) for finding in ran.audit.findings]
    lines.append(f"{audit_line}  {ran.db} (run {ran.run_id})")
    return "\n".join(lines)


def _table(outputs: Sequence[OutputLine]) -> list[str]:
    if not outputs:
        return []
    rows = [("completion", "exit depths", "finish")]
    rows += [
        (_completion(output), _some(output.exit_depths), output.finish_reason or "-")
        for output in outputs[:_LINES_SHOWN]
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]
    if (hidden := len(outputs) - _LINES_SHOWN) > 0:
        lines.append(f"… and {hidden} more (--json lists all)")
    return lines


def _completion(output: OutputLine) -> str:
    """`27+58=85`; without texts `a: 5 prompt tokens → 12 407 33`."""
    if isinstance(output.prompt, str) and output.text is not None:
        return _one_line(output.prompt + output.text)
    head = f"{len(output.prompt)} prompt tokens"
    if isinstance(output.prompt, str):
        head = _one_line(output.prompt)
    return f"{_one_line(output.request_id)}: {head} → {_some(output.token_ids) or '-'}"


def _numbers(summary: Summary) -> str:
    parts = [
        counted(summary.requests, "request"),
        counted(summary.tokens, "token"),
        counted(summary.steps, "step"),
        counted(summary.batches, "batch"),
    ]
    if summary.preemptions:
        parts.append(counted(summary.preemptions, "preemption"))
    if summary.mean_exit_depth is not None:
        parts.append(f"mean exit depth {summary.mean_exit_depth:.2f}")
    return ", ".join([*parts, f"{summary.seconds:.2f} s"])


def _finding(finding: FindingLine) -> str:
    who = "" if finding.request_id is None else f" request {_one_line(finding.request_id)}"
    return f"{finding.invariant} seq {finding.seq} step {finding.step}{who}: {finding.message}"


def _some(items: Iterable[int]) -> str:
    texts = [str(item) for item in items]
    if len(texts) <= _ITEMS_SHOWN:
        return " ".join(texts)
    return f"{' '.join(texts[:_ITEMS_SHOWN])} … ({len(texts)})"


def _one_line(text: str) -> str:
    """Text without anything that moves a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
