"""EngineState: everything a decision may read. Changed by `apply` only, for a recorded fact.

Queues are insertion-ordered dicts keyed by request, so that entering, leaving and finding are O(1);
`waiting` and `holders` are kept in the order key. Nothing here knows a clock, a runner or the log.
"""

import msgspec

from .batch import BlockTable, ModelFacts, RequestSpec
from .blocks import BlockPool
from .config import EngineConfig
from .events import Selected
from .generations import Generations
from .machines import NULL
from .moves import INITIAL, KV_OF, SLOT_OF, STATUS_OF, WORK_OF
from .order import Holders, OrderKey, Waiting
from .prefixes import PrefixIndex
from .states import WorkKey


class Request:
    """One live request. `joint` holds its four machine states (see `moves`)."""

    __slots__ = (
        "block_table",
        "blocks",
        "bypasses",
        "covered_tokens",
        "ended_seq",
        "exit_depths",
        "finish_reason",
        "frontiers",
        "host_blocks",
        "joint",
        "logprobs",
        "loops_done",
        "most_loops",
        "name",
        "order_key",
        "outputs",
        "page_keys",
        "prompt_len",
        "queued_seq",
        "ref",
        "replaying",
        "spec",
        "state_row",
        "submitted_seq",
        "taken",
        "taken_ticket",
        "tickets_in_flight",
        "undelivered",
        "verdict",
    )  # fmt: skip

    def __init__(
        self, ref: int, spec: RequestSpec, *, submitted_seq: int, priority: int, depths: int
    ) -> None:
        self.ref = ref
        self.spec = spec
        self.name = f"{spec.request_id}#{spec.generation}"
        self.joint = INITIAL
        self.prompt_len = len(spec.prompt_token_ids)
        self.submitted_seq = submitted_seq
        self.order_key: OrderKey = (priority, submitted_seq)
        self.frontiers = [0] * (depths + 1)  # [d]: tokens of the prompt that finished d loops
        self.replaying = False  # since a rewind: the prefill rebuilds what was computed before
        self.page_keys: tuple[bytes, ...] = ()  # of the prompt's full pages, for the prefix cache
        self.loops_done = 0  # of the token being computed
        limit = spec.params.max_loops
        self.most_loops = depths if limit is None else limit  # where no depth is forced
        self.outputs: list[int] = []
        self.exit_depths: list[int] = []
        self.logprobs: list[float | None] = []
        self.blocks = 0  # physical blocks referenced, over all planes
        self.block_table: BlockTable = ()
        self.covered_tokens = 0  # positions that lie in its blocks
        self.host_blocks = 0  # blocks of its offloaded KV
        self.state_row = -1
        self.taken: Selected | None = None  # the row being computed
        self.taken_ticket = -1
        self.tickets_in_flight = 0  # asynchronously: unretired tickets that have a row of it
        self.undelivered = 0  # asynchronously: outputs being sampled, 0 or 1
        self.queued_seq = submitted_seq  # the event that made it wait for what it waits for now
        self.ended_seq = -1
        self.finish_reason: str | None = None
        self.bypasses = 0  # fresh requests of a worse order key admitted before it
        self.verdict: str | None = None  # first word of the last one recorded

    @property
    def status(self) -> str:
        """The status machine's state."""
        return STATUS_OF[self.joint]

    @property
    def work(self) -> str:
        """The work machine's state, e.g. `QUEUED:DECODE_CODA`."""
        return WORK_OF[self.joint]

    @property
    def slot(self) -> str:
        """The slot machine's state."""
        return SLOT_OF[self.joint]

    @property
    def kv(self) -> str:
        """The KV machine's state."""
        return KV_OF[self.joint]

    @property
    def scheduled_outputs(self) -> int:
        """Its outputs, with the one that is being sampled."""
        return len(self.outputs) + self.undelivered

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompt (and of what is replayed) finished at every depth."""
        return self.frontiers[-1]

    @property
    def preluded_tokens(self) -> int:
        """Tokens of the prompt that are embedded."""
        return self.frontiers[0]

    @property
    def prefill_tokens(self) -> int:
        """How many tokens the prefill covers: the prompt, and in a replay every output but the
        last, which is the next input.
        """
        replayed = len(self.outputs) - 1 if self.replaying and self.outputs else 0
        return self.prompt_len + replayed

    @property
    def in_prefill(self) -> bool:
        """Whether prompt (or replayed) tokens are still to be computed."""
        return self.replaying or self.frontiers[-1] < self.prompt_len

    @property
    def capacity_tokens(self) -> int:
        """Positions that ever get KV: 8 prompt tokens and 5 outputs need 12, since the last token
        is never fed back.
        """
        return self.prompt_len + self.spec.params.max_tokens - 1

    @property
    def block_ids(self) -> tuple[int, ...]:
        """The blocks it references, plane by plane."""
        return tuple(block for plane in self.block_table for block in plane)

    @property
    def position(self) -> int:
        """The position of the newest token: the last output, or the prompt's last token."""
        return self.prompt_len + self.scheduled_outputs - 1


class Ticket(msgspec.Struct):
    """A batch on its way. `state` is the ticket machine's."""

    state: str = NULL
    refs: list[int] = []
    submitted_seq: int = -1
    settled_seq: int = -1  # of its complete_batch or fail_batch


class EngineState:
    """The fold of a run's log."""

    def __init__(self, config: EngineConfig, model: ModelFacts) -> None:
        assert config.cache.num_blocks is not None, "num_blocks is resolved before the state exists"
        self.config = config
        self.model = model
        self.is_async = config.execution.async_scheduling
        self.seq = 0
        self.next_ref = 0
        self.next_ticket = 0
        self.generations = Generations()
        self.by_ref: dict[int, Request] = {}
        self.by_id: dict[str, Request] = {}
        self.waiting: Waiting[Request] = Waiting()
        self.holders: Holders[Request] = Holders()
        self.retiring: dict[Request, None] = {}  # they have ended, and hold what they held
        self.queues: dict[WorkKey, dict[Request, None]] = {key: {} for key in WorkKey}
        self.tickets: dict[int, Ticket] = {}
        self.slots_held = 0
        self.prefixes = PrefixIndex()
        self.host_blocks = 0
        self.free_state_rows = list(range(config.scheduler.max_num_seqs - 1, -1, -1))
        self.pool = BlockPool(config.cache.num_blocks)
        self.unfinished = 0  # live requests that have not ended
        self.prefill_batches_since_recurrent = 0
        self.prelude_batches_since_prompt_recurrent = 0
        self.last_works: tuple[WorkKey, ...] = ()

    @property
    def planes(self) -> int:
        """KV planes of the layout in use."""
        return self.model.planes

    @property
    def block_size(self) -> int:
        """Token positions per block."""
        return self.config.cache.block_size

    @property
    def decode_due(self) -> bool:
        """Prompt work has had its share since the last decode loop."""
        limit = self.config.scheduler.max_prefill_batches_before_decode
        return self.prefill_batches_since_recurrent >= limit

    def has_slot(self) -> bool:
        """Whether an execution slot is free."""
        return self.slots_held < self.config.scheduler.max_num_seqs

    def next_generation(self, request_id: str) -> int:
        """The generation that the next add of this id gets."""
        return self.generations.newest(request_id) + 1

    def as_dict(self) -> dict[str, object]:
        """Everything that decides, as plain values: two states are equal iff these are (but for
        how often each id was used, which a log may keep for a state).
        """
        return {
            "seq": self.seq,
            "next_ref": self.next_ref,
            "next_ticket": self.next_ticket,
            "requests": {ref: _request_dict(r) for ref, r in self.by_ref.items()},
            "ids": {request_id: r.ref for request_id, r in self.by_id.items()},
            "waiting": [r.ref for r in self.waiting],
            "holders": [r.ref for r in self.holders],
            "retiring": sorted(r.ref for r in self.retiring),
            "queues": {str(k): [r.ref for r in q] for k, q in self.queues.items()},
            "tickets": {t: (v.state, list(v.refs)) for t, v in self.tickets.items()},
            "slots_held": self.slots_held,
            "free_state_rows": list(self.free_state_rows),
            "free_blocks": self.pool.free_ids(),
            "prefix_only": self.pool.prefix_only,
            "prefixes": self.prefixes.entries(),
            "host_blocks": self.host_blocks,
            "unfinished": self.unfinished,
            "prefill_batches_since_recurrent": self.prefill_batches_since_recurrent,
            "prelude_batches_since_prompt_recurrent": self.prelude_batches_since_prompt_recurrent,
            "last_works": self.last_works,
        }


def _request_dict(request: Request) -> dict[str, object]:
    fields = {name: getattr(request, name) for name in Request.__slots__ if name != "joint"}
    fields["states"] = (request.status, request.work, request.slot, request.kv)
    return fields
