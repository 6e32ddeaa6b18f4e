"""The auditor: checks, from a log alone, that a run kept every rule.

Imports the engine's declarations and log reader, never the engine, never a runner.
"""

from .findings import Finding
from .reader import Log, open_log
from .replay import Replay, replay
from .request_state import RequestState
from .run_state import RunState, TicketState
from .verify import Report, RunReport, verify
from .watch import watch

__all__ = [
    "Finding",
    "Log",
    "Replay",
    "Report",
    "RequestState",
    "RunReport",
    "RunState",
    "TicketState",
    "open_log",
    "replay",
    "verify",
    "watch",
]
