"""The auditor: checks, from a log alone, that a run kept every rule.

Imports the engine's declarations and log reader, never the engine, never a runner.
"""

from .findings import Finding
from .reader import Log, open_log
from .verify import Report, RunReport, verify

__all__ = ["Finding", "Log", "Report", "RunReport", "open_log", "verify"]
