"""What a test asks of the auditor about a tampered log."""

from __future__ import annotations

from reseal import Event, Tampered

import audit
from audit import Finding


def first_finding(log: Tampered, *, sealed: bool = True) -> Finding:
    """Seal and verify the log; its first finding."""
    report = audit.verify(log.seal() if sealed else log.write())
    assert report.verdict == "findings"
    assert not report.ok
    return report.findings[0]


def assert_first(
    log: Tampered, invariant: str, at: Event | None = None, *, sealed: bool = True
) -> Finding:
    """The first finding is of this invariant, and at this event."""
    finding = first_finding(log, sealed=sealed)
    assert finding.invariant == invariant, finding
    if at is not None:
        assert finding.seq == at.seq, finding
        assert finding.step == at.step, finding
        if at.ref is not None:
            assert finding.request_id == log.requests[at.ref][1], finding
    return finding
