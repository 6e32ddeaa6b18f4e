"""The auditor: checks, from a log alone, that a run kept every rule.

Imports the engine's declarations and log reader, never the engine, never a runner.
"""

from .compare import Comparison, compare
from .diff import Diff, Parting, diff, first_difference
from .diffing.difference import Difference
from .findings import Finding
from .reader import Log, open_log
from .replay import Replay, replay
from .request_state import RequestState
from .run_state import RunState, TicketState
from .shrink import Shrunk, shrink
from .verify import Report, RunReport, verify
from .watch import watch

__all__ = [
    "Comparison",
    "Diff",
    "Difference",
    "Finding",
    "Log",
    "Parting",
    "Replay",
    "Report",
    "RequestState",
    "RunReport",
    "RunState",
    "Shrunk",
    "TicketState",
    "compare",
    "diff",
    "first_difference",
    "open_log",
    "replay",
    "shrink",
    "verify",
    "watch",
]
