"""The auditor as `simulate` wants it, and a quiet engine."""

import audit
from runner.simulate import Failure


def judge(log):
    report = audit.verify(log)
    failures = [
        Failure(kind=f.invariant, message=f.message, seq=f.seq, step=f.step)
        for f in report.findings
    ]
    if report.verdict == "inconclusive":
        failures.append(Failure(kind="inconclusive", message=str(report.runs)))
    return failures
