"""One request's part of a `RunState`: plain values, made by `fold.py`; nothing here reads a log."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rlt_fsm.machines import FREE, IDLE, NONE, NULL

from .facts import Params

OrderKey = tuple[int, int]  # (priority under policy `priority`, else 0; submitted seq)
BlockTable = tuple[tuple[int, ...], ...]  # by plane, in the order of the positions


class Row(NamedTuple):
    """A request's row in the batch that it was last taken for."""

    ticket: int | None
    row: int | None
    token_start: int | None
    token_count: int | None
    depth: int | None
    replay: bool


class Output(NamedTuple):
    """One output; `exit_depth` is 1-based."""

    token_id: int
    exit_depth: int
    logprob: float | None


class Verdict(NamedTuple):
    """Why a request was passed over, as recorded at `seq`."""

    seq: int
    step: int
    reason: str


class RequestState:
    """One request from `submit` to `retire`.

    `frontiers[d]` counts the tokens of its prefill that finished d loops, `queued_seq` is the event
    since which it waits for what it waits for, `seated_step` the step in which it took its slot.
    """

    __slots__ = (
        "block_table", "bypasses", "ended_seq", "epoch", "finish_reason", "frontiers", "generation",
        "host_blocks", "is_replaying", "kv", "loops_done", "order_key", "outputs", "params",
        "prompt_len", "queued_seq", "queued_step", "ref", "request_id", "seated_step", "slot",
        "state_row", "status", "submitted_seq", "submitted_step", "taken", "verdict", "work",
    )  # fmt: skip

    def __init__(
        self, ref: int, request_id: str, generation: int, *, prompt_len: int, params: Params
    ) -> None:
        self.ref = ref
        self.request_id = request_id
        self.generation = generation
        self.prompt_len = prompt_len
        self.params = params
        self.epoch: object = None  # of the fold that may still change this object
        self.status: str = NULL
        self.work: str = IDLE
        self.slot: str = FREE
        self.kv: str = NONE
        self.order_key: OrderKey = (0, 0)
        self.submitted_seq = self.submitted_step = 0
        self.queued_seq = self.queued_step = 0
        self.seated_step: int | None = None
        self.ended_seq: int | None = None
        self.finish_reason: str | None = None
        self.frontiers: list[int] = []
        self.is_replaying = False
        self.loops_done = 0
        self.outputs: list[Output] = []
        self.block_table: BlockTable = ()
        self.host_blocks = 0
        self.state_row: int | None = None
        self.taken: Row | None = None
        self.bypasses = 0
        self.verdict: Verdict | None = None

    def copy(self, epoch: object) -> "RequestState":
        """The same, to be changed by the fold of another epoch."""
        twin = object.__new__(RequestState)
        for name in RequestState.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.epoch = epoch
        twin.frontiers = self.frontiers[:]
        twin.outputs = self.outputs[:]
        return twin

    @property
    def name(self) -> str:
        """As people write it: its id, with the generation from the second on."""
        return self.request_id if self.generation == 1 else f"{self.request_id}#{self.generation}"

    @property
    def blocks(self) -> int:
        """Physical blocks that it references, over all planes."""
        return sum(len(plane) for plane in self.block_table)

    @property
    def block_ids(self) -> Iterator[int]:
        """Those blocks, plane by plane."""
        return (block for plane in self.block_table for block in plane)

    @property
    def pending(self) -> str | None:
        """The key of its QUEUED work, if it has some."""
        queued, _, key = self.work.partition(":")
        return key if queued == "QUEUED" else None

    @property
    def prefill_tokens(self) -> int:
        """Tokens that its prefill covers: in a replay the outputs but the last, too."""
        replayed = max(0, len(self.outputs) - 1) if self.is_replaying else 0
        return self.prompt_len + replayed

    def as_dict(self) -> dict[str, object]:
        """Everything as plain values."""
        left_out = ("epoch", "params", "outputs", "taken", "verdict")
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in left_out}
        return {
            "request": self.name,
            **fields,
            "params": msgspec.to_builtins(self.params),
            "token_ids": [output.token_id for output in self.outputs],
            "exit_depths": [output.exit_depth for output in self.outputs],
            "logprobs": [output.logprob for output in self.outputs],
            "taken": None if self.taken is None else self.taken._asdict(),
            "verdict": None if self.verdict is None else self.verdict._asdict(),
        }
