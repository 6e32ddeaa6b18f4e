"""The vocabulary: spellings that Python, the log and the command line share (contract §1).

Names only. How states move is declared in `machines.py`.
"""

from enum import StrEnum


class RequestStatus(StrEnum):
    """A request's life."""

    WAITING = "WAITING"
    RECEIVING = "RECEIVING"
    TRANSFERRING = "TRANSFERRING"
    ACTIVE = "ACTIVE"
    FINISHED = "FINISHED"


class WorkKey(StrEnum):
    """The one piece of work that an ACTIVE request may have pending."""

    PROMPT_ATOMIC = "PROMPT_ATOMIC"
    PROMPT_PRELUDE = "PROMPT_PRELUDE"
    PROMPT_RECURRENT = "PROMPT_RECURRENT"
    DECODE_PRELUDE = "DECODE_PRELUDE"
    DECODE_RECURRENT = "DECODE_RECURRENT"
    DECODE_CODA = "DECODE_CODA"
    SPECULATIVE = "SPECULATIVE"


class Operation(StrEnum):
    """The model call that serves a batch."""

    PRELUDE = "PRELUDE"
    RECURRENT = "RECURRENT"
    CODA = "CODA"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    TRANSFERRED = "transferred"


class Outcome(StrEnum):
    """How a run stands, as its log tells it."""

    DRAINED = "drained"
    CLOSED = "closed"
    CRASHED = "crashed"
    RUNNING = "running"


OPERATION_OF = {
    WorkKey.PROMPT_ATOMIC: Operation.RECURRENT,  # composite: a chunk through every loop
    WorkKey.PROMPT_PRELUDE: Operation.PRELUDE,
    WorkKey.PROMPT_RECURRENT: Operation.RECURRENT,
    WorkKey.DECODE_PRELUDE: Operation.PRELUDE,
    WorkKey.DECODE_RECURRENT: Operation.RECURRENT,
    WorkKey.DECODE_CODA: Operation.CODA,
    WorkKey.SPECULATIVE: Operation.RECURRENT,  # composite: draft and verify
}

PROMPT_WORKS = frozenset({WorkKey.PROMPT_ATOMIC, WorkKey.PROMPT_PRELUDE, WorkKey.PROMPT_RECURRENT})
