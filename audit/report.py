"""What an audit comes to: the verdict on each run of a log, and on the log."""

from typing import Literal

import msgspec

from .findings import Finding

Verdict = Literal["clean", "findings", "inconclusive"]

# Worst first: a finding is an answer, inconclusive is none, and neither may hide behind clean.
SEVERITY: tuple[Verdict, ...] = ("findings", "inconclusive", "clean")


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one run. `why` says why it is inconclusive; `counts` how often a rule broke.

    `unchecked` has a sentence for each thing that a log of another engine does not tell. `trusted`
    says what was not read: events that were archived, where the run begins with a checkpoint.
    """

    run_id: int
    verdict: Verdict
    why: str | None
    events: int
    steps: int
    requests: int
    seconds: float
    findings: list[Finding]
    counts: dict[str, int]
    digest: str | None
    unchecked: list[str]
    trusted: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of a log. `runs` in order of their numbers, `findings` those of all runs."""

    log: str
    verdict: Verdict
    findings: list[Finding]
    events: int
    seconds: float
    runs: list[RunReport]

    @property
    def ok(self) -> bool:
        """Whether every run was read to its end and is clean."""
        return self.verdict == "clean"
