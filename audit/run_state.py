"""What an engine's state was at one place of its log: plain values, to look at and to compare.

`fold.py` makes it from events; nothing here reads a log. It shares nothing with the engine's own
state, so that the one can be held against the other.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from rlt_fsm.machines import FREE, HELD, IDLE, NONE, NULL
from rlt_fsm.states import RequestStatus, WorkKey

from .facts import CacheFacts, ConfigFacts, ModelFacts, Params

OrderKey = tuple[int, int]  # (priority under policy `priority`, else 0; submitted seq)
BlockTable = tuple[tuple[int, ...], ...]  # by plane, in the order of the positions

WAITING = RequestStatus.WAITING.value


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


class TicketState(msgspec.Struct):
    """A batch that is not retired yet. `state` NULL: it is being built."""

    number: int
    state: str = NULL
    refs: list[int] = []
    works: tuple[str, ...] = ()
    reason: str | None = None
    submitted_seq: int | None = None
    settled_seq: int | None = None  # of its complete_batch or fail_batch


class RunState:
    """The state after event `seq` of run `run_id`; what `audit.replay(…).at(…)` gives.

    `requests` holds the live ones by ref: those submitted and not retired. `notes` tells which
    events could not be folded, if any.
    """

    def __init__(self, run_id: int, config: ConfigFacts, model: ModelFacts | None) -> None:
        self.run_id = run_id
        self.config = config
        self.model = model
        self.seq = 0
        self.step = 0
        self.requests: dict[int, RequestState] = {}
        self.tickets: dict[int, TicketState] = {}
        self.prefix_pages: dict[int, tuple[int, ...]] = {}  # by first block, the oldest first
        self.line: list[tuple[OrderKey, int]] = []  # who is WAITING, best first, and its ref
        self.submitted = self.refused = self.retired = 0
        self.next_ticket = 0
        self.last_works: tuple[str, ...] = ()
        self.prefill_batches_since_recurrent = 0
        self.prelude_batches_since_prompt_recurrent = 0
        self.outcome: str | None = None  # once it is closed
        self.notes: list[str] = []

    def copy(self) -> "RunState":
        """The same; requests are shared until a fold changes them."""
        twin = object.__new__(RunState)
        twin.__dict__.update(self.__dict__)
        twin.requests = dict(self.requests)
        twin.prefix_pages = dict(self.prefix_pages)
        twin.line = self.line[:]
        twin.notes = self.notes[:]
        twin.tickets = {
            number: msgspec.structs.replace(ticket, refs=ticket.refs[:])
            for number, ticket in self.tickets.items()
        }
        return twin

    # ---- queues and slots --------------------------------------------------------------------

    @property
    def waiting(self) -> list[RequestState]:
        """The WAITING requests, best order key first."""
        return [self.requests[ref] for _, ref in self.line]

    @property
    def queues(self) -> dict[str, list[RequestState]]:
        """The requests with QUEUED work by its key, the longest queued first."""
        queues: dict[str, list[RequestState]] = {key.value: [] for key in WorkKey}
        for request in self.requests.values():
            if (key := request.pending) is not None:
                queues.setdefault(key, []).append(request)
        for queue in queues.values():
            queue.sort(key=lambda request: request.queued_seq)
        return queues

    @property
    def slot_holders(self) -> list[RequestState]:
        """Whose slot is HELD, by state row."""
        held = [request for request in self.requests.values() if request.slot == HELD]
        return sorted(held, key=lambda r: (r.state_row is None, r.state_row or 0, r.ref))

    @property
    def slots(self) -> int | None:
        """How many slots there are; None where the log does not tell."""
        return self.config.scheduler.max_num_seqs

    @property
    def free_state_rows(self) -> list[int]:
        """State rows that nobody owns."""
        owned = {request.state_row for request in self.requests.values()}
        return [row for row in range(self.slots or 0) if row not in owned]

    @property
    def unfinished(self) -> int:
        """Live requests that have not ended."""
        return sum(1 for request in self.requests.values() if request.ended_seq is None)

    # ---- blocks ------------------------------------------------------------------------------

    @property
    def cache(self) -> CacheFacts:
        """The pool's configuration."""
        return self.config.cache

    @property
    def references(self) -> dict[int, int]:
        """Block → how many requests reference it, where any does."""
        counts: dict[int, int] = {}
        for request in self.requests.values():
            for block in request.block_ids:
                counts[block] = counts.get(block, 0) + 1
        return counts

    @property
    def prefix_only(self) -> list[int]:
        """Blocks that only the prefix cache keeps."""
        if not self.prefix_pages:
            return []
        referenced = self.references
        cached = (block for page in self.prefix_pages.values() for block in page)
        return sorted(block for block in cached if block not in referenced)

    @property
    def free_blocks(self) -> list[int]:
        """Blocks that nobody keeps, by id."""
        kept = {block for page in self.prefix_pages.values() for block in page}
        kept.update(self.references)
        return [block for block in range(self.cache.num_blocks or 0) if block not in kept]

    @property
    def host_blocks(self) -> int:
        """Blocks' worth of snapshots on the host."""
        return sum(request.host_blocks for request in self.requests.values())

    @property
    def block_holders(self) -> list[RequestState]:
        """Who references blocks, the most first."""
        holders = [request for request in self.requests.values() if request.block_table]
        return sorted(holders, key=lambda request: (-request.blocks, request.ref))

    # ---- as plain values ---------------------------------------------------------------------

    def as_dict(self) -> dict[str, object]:
        """Everything as plain values, requests by name; two equal states give equal ones."""
        names = {ref: request.name for ref, request in self.requests.items()}
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "step": self.step,
            "outcome": self.outcome,
            "submitted": self.submitted,
            "refused": self.refused,
            "retired": self.retired,
            "unfinished": self.unfinished,
            "waiting": [request.name for request in self.waiting],
            "queues": {key: [r.name for r in queue] for key, queue in self.queues.items()},
            "slots": {
                "total": self.slots,
                "held": [request.name for request in self.slot_holders],
                "free_state_rows": self.free_state_rows,
            },
            "blocks": {
                "total": self.cache.num_blocks,
                "referenced": len(self.references),
                "free": self.free_blocks,
                "prefix_only": self.prefix_only,
                "prefix_pages": list(self.prefix_pages.values()),
                "host": self.host_blocks,
            },
            "tickets": {
                str(number): {
                    "state": ticket.state,
                    "requests": [names.get(ref, f"ref {ref}") for ref in ticket.refs],
                    "works": ticket.works,
                    "reason": ticket.reason,
                    "submitted_seq": ticket.submitted_seq,
                    "settled_seq": ticket.settled_seq,
                }
                for number, ticket in self.tickets.items()
            },
            "next_ticket": self.next_ticket,
            "last_works": self.last_works,
            "prefill_batches_since_recurrent": self.prefill_batches_since_recurrent,
            "prelude_batches_since_prompt_recurrent": self.prelude_batches_since_prompt_recurrent,
            "requests": [request.as_dict() for request in self.requests.values()],
            "notes": self.notes,
        }
