"""The JSON texts of a log as typed values: configuration, model, and what events tell in `extra`.

Only fields that an invariant reads are here, and all have the value that changes nothing when they
are missing, so that logs of other engines and other versions can be read. No rules live here.
"""

from typing import TypeVar

import msgspec

BlockIds = tuple[int, ...]
T = TypeVar("T")


class SchedulerFacts(msgspec.Struct, frozen=True):
    """`config.scheduler`."""

    mode: str = "refill"
    policy: str = "fcfs"
    enable_preemption: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefill_chunk_size: int | None = None
    max_prefill_batches_before_decode: int | None = None
    admission_scan_limit: int | None = None
    max_admission_bypasses: int | None = None


class CacheFacts(msgspec.Struct, frozen=True):
    """`config.cache`; `num_blocks` counts physical blocks over all planes."""

    num_blocks: int | None = None
    block_size: int = 16
    incremental_allocation: bool = False
    enable_prefix_caching: bool = False
    watermark_ratio: float = 0.0
    host_snapshot_blocks: int | None = None


class ExecutionFacts(msgspec.Struct, frozen=True):
    """`config.execution`."""

    async_scheduling: bool = False
    max_in_flight: int = 1


class ConfigFacts(msgspec.Struct, frozen=True):
    """`run.config`."""

    scheduler: SchedulerFacts = SchedulerFacts()
    cache: CacheFacts = CacheFacts()
    execution: ExecutionFacts = ExecutionFacts()


class ModelFacts(msgspec.Struct, frozen=True):
    """`run.model`. `planes` is the number of KV planes in use."""

    depths: int
    planes: int
    vocab_size: int | None = None
    max_model_len: int | None = None
    eos_token_ids: tuple[int, ...] = ()


class Params(msgspec.Struct, frozen=True):
    """A request's sampling parameters; loop counts are 1-based."""

    max_tokens: int = 16
    min_tokens: int = 0
    min_loops: int = 2
    max_loops: int | None = None
    exit_threshold: float = 1.0
    exit_depths: tuple[int, ...] | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    priority: int = 0
    logprobs: int | None = None


class OpenData(msgspec.Struct, frozen=True):
    """What `open` tells, as it stands."""

    config: msgspec.Raw
    model: msgspec.Raw


class SubmitData(msgspec.Struct, frozen=True):
    """What `submit`, `submit_remote` and `refuse` tell."""

    prompt_token_ids: tuple[int, ...]
    params: Params


class BlockData(msgspec.Struct, frozen=True):
    """Block ids and counts that `admit`, `grow`, `resume`, `offload`, `rewind`, `retire` … tell."""

    take: BlockIds = ()
    share: BlockIds = ()
    drop: BlockIds = ()
    publish: BlockIds = ()
    evict: BlockIds = ()
    pin: BlockIds = ()
    unpin: BlockIds = ()
    need: int | None = None
    cached_tokens: int = 0
    state_row: int | None = None
    host_blocks: int = 0


class PreemptionData(BlockData, frozen=True):
    """What `yield`, `offload`, `offload_resident` and `rewind` tell; for whom as `id#gen`."""

    for_whom: str | None = msgspec.field(default=None, name="for")


class BatchData(msgspec.Struct, frozen=True):
    """What `submit_batch` tells."""

    operation: str
    works: tuple[str, ...]
    rows: int
    tokens: int


class FinishData(msgspec.Struct, frozen=True):
    """What `finish` tells."""

    finish_reason: str


class CloseData(msgspec.Struct, frozen=True):
    """What `close` tells."""

    outcome: str


def decode(text: str | None, into: type[T]) -> T:
    """The JSON text of a log as a value of type `into`.

    Raises:
        msgspec.MsgspecError: the text is not such JSON.
    """
    return msgspec.json.decode(text or "{}", type=into)
