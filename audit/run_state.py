"""What an engine's state was at one place of its log: plain values, to look at and to compare.

`fold.py` makes it from events; nothing here reads a log. It shares nothing with the engine's own
state, so that the one can be held against the other.
"""

import msgspec

from rlt_fsm.machines import HELD, NULL
from rlt_fsm.states import WorkKey

from .facts import CacheFacts, ConfigFacts, ModelFacts
from .request_state import OrderKey, RequestState


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
