"""Every error a caller can meet.

RltError                      the caller is wrong, or the world said no at the boundary
├── RequestRefused            a request that can never be served (recorded in the log)
├── ConfigError               a configuration field, its value and the rule it breaks
├── WorkloadError             a workload file that cannot be used
├── CheckpointError           a model folder that cannot be used
├── EngineClosed              a call on an engine that was closed or has stopped
├── DeviceLost                the device failed for good; another process goes on
└── LogError                  an event log that cannot be opened, read or written
    ├── NotALog               the file is something else
    ├── UnknownSchema         written by an incompatible version
    └── LogUnavailable        missing, locked, read-only, disk full
IllegalTransition             we are wrong: the engine stops with its log intact
"""


class RltError(Exception):
    """The caller's mistake, or the world's refusal; nothing was changed."""


class RequestRefused(RltError):
    """A request was turned away at the door; `code` is the first word of the recorded reason."""

    def __init__(self, request_id: str, code: str, message: str) -> None:
        super().__init__(f"request {request_id!r} refused: {message}")
        self.request_id = request_id
        self.code = code


class ConfigError(RltError):
    """A configuration value breaks a rule."""


class WorkloadError(RltError):
    """A workload file cannot be used."""


class CheckpointError(RltError):
    """A model folder cannot be used."""


class EngineClosed(RltError):
    """The engine was closed or has stopped after a failure."""


class DeviceLost(RltError):
    """The device does nothing more in this process; the engine stops with its log intact."""


class LogError(RltError):
    """An event log cannot be opened, read or written."""


class NotALog(LogError):
    """The file is not an event log."""


class UnknownSchema(LogError):
    """The log was written with a schema version this code does not know."""


class LogUnavailable(LogError):
    """The log is missing, locked, read-only or out of space."""


class IllegalTransition(Exception):
    """An event met a state from which its move is not declared; nothing was changed."""
