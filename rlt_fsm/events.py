"""One typed class per fact; `Fact` is the closed union of them.

A fact says what happened, in the words of the log. It carries no sequence number, step or time:
the recorder adds those. `ref` is the request's ordinal in its run (0, 1, 2 … in order of submit or
refusal). `trigger` is the qualified trigger of `machines.py`; what nothing fires yet has no class.
"""

from typing import ClassVar

import msgspec

from .batch import ModelFacts, RequestSpec
from .config import EngineConfig
from .states import FinishReason, Operation, Outcome, WorkKey

BlockIds = tuple[int, ...]  # in the order taken, plane by plane


class _Fact(msgspec.Struct, frozen=True):
    trigger: ClassVar[str]


# ---- a run -----------------------------------------------------------------------------------


class RunOpened(_Fact, frozen=True, gc=False):
    """The first event of a run; the `run` view holds the config and the model.

    `reason`: why the runner does something otherwise than it was asked to.
    """

    trigger = "open"
    config: EngineConfig
    model: ModelFacts
    reason: str | None = None


class RunClosed(_Fact, frozen=True, gc=False):
    """The last event of a run."""

    trigger = "close"
    outcome: Outcome


class RunRecovered(_Fact, frozen=True, gc=False):
    """A crashed run goes on from here. `evicted`: pages of the prefix cache, which is lost.
    `reason`: why the runner does something otherwise than the run's config has it.
    """

    trigger = "recover"
    evicted: BlockIds = ()
    reason: str | None = None


# ---- a request's life ------------------------------------------------------------------------


class Submitted(_Fact, frozen=True, gc=False):
    """A request was accepted."""

    trigger = "submit"
    ref: int
    spec: RequestSpec


class Refused(_Fact, frozen=True, gc=False):
    """A request was turned away at the door."""

    trigger = "refuse"
    ref: int
    spec: RequestSpec
    reason: str


class Admitted(_Fact, frozen=True, gc=False):
    """A waiting request got a slot, a state row and its first blocks.

    `shared` are pages of the prefix cache, `blocks` fresh ones; `cached_tokens` need no computing.
    """

    ref: int
    work: WorkKey
    blocks_needed: int
    cached_tokens: int
    state_row: int
    blocks: BlockIds
    shared: BlockIds = ()

    @property
    def trigger(self) -> str:  # type: ignore[override]  # the destination names it
        """The qualified trigger."""
        return f"admit:{self.work}"


class Selected(_Fact, frozen=True, gc=False):
    """A request's pending work became row `row` of the batch being built."""

    trigger = "select"
    ref: int
    row: int
    token_start: int
    token_count: int
    depth: int | None
    replay: bool


class Enqueued(_Fact, frozen=True, gc=False):
    """A request's next work is pending. `exit_depth` (1-based) only for DECODE_CODA."""

    ref: int
    work: WorkKey
    exit_depth: int | None = None

    @property
    def trigger(self) -> str:  # type: ignore[override]  # the destination names it
        """The qualified trigger."""
        return f"enqueue:{self.work}"


class Grown(_Fact, frozen=True, gc=False):
    """A running request took more blocks."""

    trigger = "grow"
    ref: int
    blocks: BlockIds


class Yielded(_Fact, frozen=True, gc=False):
    """A slot was given to a more urgent request; the KV stays resident."""

    trigger = "yield"
    ref: int
    for_ref: int


class Offloaded(_Fact, frozen=True, gc=False):
    """A running request's KV went to the host so that another fits."""

    trigger = "offload"
    ref: int
    for_ref: int
    blocks_freed: BlockIds
    host_blocks: int


class OffloadedResident(_Fact, frozen=True, gc=False):
    """A waiting resident request's KV went to the host."""

    trigger = "offload_resident"
    ref: int
    for_ref: int
    blocks_freed: BlockIds
    host_blocks: int


class Resumed(_Fact, frozen=True, gc=False):
    """A parked request runs again; `blocks` only where its KV was offloaded."""

    trigger = "resume"
    ref: int
    state_row: int
    blocks: BlockIds


class Rewound(_Fact, frozen=True, gc=False):
    """A request is back to its prompt and outputs; the next admission replays them."""

    trigger = "rewind"
    ref: int
    why: str
    for_ref: int | None
    blocks_freed: BlockIds


class OutputSampled(_Fact, frozen=True, gc=False):
    """Output `idx` (0-based) of a request, sampled at `exit_depth` (1-based loops).

    `note` is the runner's code for an output that no model made (the log's `reason`).
    """

    trigger = "output"
    ref: int
    idx: int
    token_id: int
    exit_depth: int
    logprob: float | None
    note: str | None = None


class Finished(_Fact, frozen=True, gc=False):
    """A request ended by itself."""

    trigger = "finish"
    ref: int
    finish_reason: FinishReason


class Aborted(_Fact, frozen=True, gc=False):
    """A request was ended by its caller; `draining`: a remote peer still reads its pages."""

    ref: int
    draining: bool = False

    @property
    def trigger(self) -> str:  # type: ignore[override]  # the destination names it
        """The qualified trigger."""
        return "abort:TRANSFERRING" if self.draining else "abort:FINISHED"


class Retired(_Fact, frozen=True, gc=False):
    """Nothing can touch the request's slot, blocks and state row any more; all are free."""

    trigger = "retire"
    ref: int
    blocks_freed: BlockIds


class Dropped(_Fact, frozen=True, gc=False):
    """A late or surplus result changed nothing. `ref` may name a request that is gone."""

    trigger = "drop"
    ref: int
    reason: str


class VerdictGiven(_Fact, frozen=True, gc=False):
    """Why a request was not admitted, or was left out of the batch of its own key."""

    trigger = "verdict"
    ref: int
    reason: str


class Published(_Fact, frozen=True, gc=False):
    """Full prompt pages from `page_start` on joined the prefix cache; ids plane by plane."""

    trigger = "publish"
    ref: int
    page_start: int
    blocks: BlockIds


class Evicted(_Fact, frozen=True, gc=False):
    """Pages that only the prefix cache held became free, for `ref`."""

    trigger = "evict"
    ref: int
    blocks: BlockIds


# ---- a ticket --------------------------------------------------------------------------------


class BatchSubmitted(_Fact, frozen=True, gc=False):
    """A batch goes to the runner."""

    trigger = "submit_batch"
    operation: Operation
    works: tuple[WorkKey, ...]
    rows: int
    tokens: int
    reason: str


class BatchCompleted(_Fact, frozen=True, gc=False):
    """The runner's results for a ticket are in."""

    trigger = "complete_batch"


class BatchFailed(_Fact, frozen=True, gc=False):
    """The device failed a ticket."""

    trigger = "fail_batch"
    reason: str


class BatchRetired(_Fact, frozen=True, gc=False):
    """Nothing of a ticket runs any more."""

    trigger = "retire_batch"


TicketFact = BatchSubmitted | BatchCompleted | BatchFailed | BatchRetired
RunFact = RunOpened | RunClosed | RunRecovered
RequestFact = (
    Submitted | Refused | Admitted | Selected | Enqueued | Grown | Yielded | Offloaded
    | OffloadedResident | Resumed | Rewound | OutputSampled | Finished | Aborted | Retired
    | Dropped | VerdictGiven | Published | Evicted
)  # fmt: skip
Fact = RequestFact | TicketFact | RunFact
