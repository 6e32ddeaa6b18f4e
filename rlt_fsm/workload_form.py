"""The objects of a workload file, `rlt-workload/1` (contract §5), and how its requests are named.

Types only: reading, writing and checking are in `workload.py`, which is what callers import.
"""

import re
from typing import Annotated, Literal

import msgspec

from .config import EngineConfig
from .params import SamplingParams
from .states import FinishReason

FORMAT = "rlt-workload/1"
DEFAULT_MAX_STEPS = 100_000

# The upper bounds keep a slip of the pen from asking for more than any machine has.
_Step = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**20)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Object(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An object of the file; a `note` on it is for people and is not kept."""


class When(_Object, frozen=True, kw_only=True):
    """The nth event that puts a request in one state of one machine."""

    request: str
    status: str | None = None
    work: str | None = None
    slot: str | None = None
    kv: str | None = None
    nth: _Positive = 1


class Action(_Object, frozen=True, kw_only=True):
    """One thing done to the run, at a step or when an event has happened."""

    at: _Step | None = None
    when: When | None = None
    abort: str | None = None
    fail: bool | None = None
    crash: bool | None = None
    receive_done: str | None = None
    send_done: str | None = None
    peer_lost: str | bool | None = None


class Request(_Object, frozen=True, kw_only=True):
    """One add of a request id.

    After `parse`, `params` is complete: max_tokens, priority, exit_depths, and what `eos_at` and
    `stop_at` ask for, are in it.
    """

    id: str
    at: _Step = 0
    prompt: tuple[_Int64, ...] | None = None
    prompt_len: _Tokens | None = None
    prompt_like: str | None = None
    shared_len: _Tokens | None = None
    max_tokens: int | None = None
    priority: int | None = None
    exit_depths: tuple[int, ...] | None = None
    eos_at: _Positive | None = None
    stop_at: _Positive | None = None
    params: SamplingParams = SamplingParams()
    remote: bool = False
    export: bool = False


class Expect(_Object, frozen=True, kw_only=True):
    """What must hold after the run. Requests that are not named may end in any way."""

    finish: dict[str, FinishReason] = {}
    abort: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    outputs: dict[str, _Count] = {}
    max_steps: _Positive = DEFAULT_MAX_STEPS
    max_preemptions: _Count | None = None
    notes: str | tuple[str, ...] = ()


class Completion(_Object, frozen=True, kw_only=True):
    """In which order, and how many steps late, an asynchronous sim completes its batches."""

    order: Literal["fifo", "random"] = "fifo"
    seed: _Int64 = 0
    max_delay: _Count = 0


class Workload(_Object, frozen=True, kw_only=True):
    """A whole file. `depths`, `vocab_size` and `max_model_len` describe the sim model."""

    format: str
    name: str = ""
    about: str = ""
    seed: _Int64 = 0
    model: str = "sim"
    depths: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 4
    vocab_size: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)] = 512
    max_model_len: _Positive = 4096
    config: EngineConfig = EngineConfig()
    requests: tuple[Request, ...]
    actions: tuple[Action, ...] = ()
    completion: Completion | None = None
    expect: Expect = Expect()


# ---- names of requests -------------------------------------------------------------------------


def label(request_id: str, generation: int) -> str:
    """How `expect` and the command line name one use of an id: `a`, `a#2`, `a#3`."""
    return request_id if generation == 1 else f"{request_id}#{generation}"


def split_label(text: str) -> tuple[str, int]:
    """(id, generation) of a label; `a` and `a#1` are the same."""
    match = re.fullmatch(r"(.*)#([1-9]\d*)", text, re.DOTALL)
    return (match[1], int(match[2])) if match else (text, 1)


def in_order(workload: Workload) -> list[tuple[int, int]]:
    """(index in `requests`, generation) of every add, in the order in which they arrive."""
    seen: dict[str, int] = {}
    order = []
    for index in sorted(range(len(workload.requests)), key=lambda i: workload.requests[i].at):
        request_id = workload.requests[index].id
        seen[request_id] = generation = seen.get(request_id, 0) + 1
        order.append((index, generation))
    return order


def when_states(when: When) -> list[tuple[str, str]]:
    """The (machine, state) pairs that a trigger names; exactly one in a checked workload."""
    pairs = (
        ("status", when.status),
        ("work", when.work),
        ("slot", when.slot),
        ("kv", when.kv),
    )
    return [(machine, state) for machine, state in pairs if state is not None]
